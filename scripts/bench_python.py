#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the Python package.

    scripts/bench_python.py call              overhead of qkv.attention over the C++ call, by array type
    scripts/bench_python.py gpt2              training GPT-2 from transformers with attention from PyTorch and from qkv
    scripts/bench_python.py attention         qkv.attention and PyTorch's function: forward and backward, one shape

Medians of alternating rounds; run it on an idle machine. `call` needs NumPy (and measures PyTorch and JAX if
installed), the others need PyTorch and transformers.
"""
import argparse
import os
import statistics
import time

import numpy as np
import qkv
from qkv._qkv import _seconds_of_cpp


def seconds_of(call, repetitions):
    start = time.perf_counter()
    for _ in range(repetitions):
        call()
    return (time.perf_counter() - start) / repetitions


def kinds(shape):
    x = np.random.default_rng(0).standard_normal(shape).astype("f4")
    yield "NumPy", x
    for name, convert in (("torch", lambda module: module.from_numpy(x)), ("jax", lambda module: module.numpy.asarray(x))):
        try:
            yield name, convert(__import__(name))
        except ImportError:
            print(f"{name}: not installed")


def bench_call(arguments):
    qkv.set_num_threads(arguments.threads)
    for shape, count in (((1, 1, 1, 8), 10000), ((1, 8, 16, 64), 1000), ((1, 8, 64, 64), 200)):
        for name, x in kinds(shape):
            for options in ({}, {"causal": "top_left", "return_lse": True}):
                inside, whole = [], []
                for _ in range(9):
                    inside.append(_seconds_of_cpp(x, x, x, count, **options))
                    whole.append(seconds_of(lambda: qkv.attention(x, x, x, **options), count))
                a, b = (statistics.median(times) * 1e6 for times in (inside, whole))
                print(f"{name:6} {'x'.join(map(str, shape)):10} {'causal, lse' if options else 'plain':12}"
                      f"C++ {a:8.2f} us  Python {b:8.2f} us  overhead {b - a:6.2f} us")


def bench_gpt2(arguments):
    import torch
    import transformers

    import qkv.torch

    torch.set_num_threads(arguments.threads)
    qkv.set_num_threads(arguments.threads)
    size = dict(n_layer=arguments.layers, n_head=12, n_embd=768, n_positions=arguments.tokens)
    config = transformers.GPT2Config(**size, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
    models = []
    for _ in range(2):
        torch.manual_seed(1)
        model = transformers.GPT2LMHeadModel(config).train()
        models.append((model, torch.optim.AdamW(model.parameters(), lr=3e-4)))
    tokens = torch.randint(0, config.vocab_size, (arguments.batch, arguments.tokens),
                           generator=torch.Generator().manual_seed(2))
    times, losses, counts = [[], []], [[], []], None
    for step in range(arguments.steps):
        for side in (0, 1) if step % 2 else (1, 0):
            model, optimizer = models[side]
            start = time.perf_counter()
            if side:
                with qkv.torch.patch() as patch:
                    loss = model(tokens, labels=tokens).loss
                    loss.backward()
                counts = patch
            else:
                loss = model(tokens, labels=tokens).loss
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            times[side].append(time.perf_counter() - start)
            losses[side].append(float(loss.detach()))
        print(f"step {step + 1}: loss {losses[0][-1]:.6f} PyTorch, {losses[1][-1]:.6f} qkv "
              f"({abs(losses[0][-1] - losses[1][-1]):.1e} apart); {times[0][-1]:.3f} s, {times[1][-1]:.3f} s", flush=True)
    worst = max(abs(a - b) for a, b in zip(*losses))
    plain, ours = (statistics.median(t[1:] or t) for t in times)
    print(f"GPT-2, {arguments.layers} layers, {arguments.batch} x {arguments.tokens} tokens, {arguments.threads} threads, "
          f"PyTorch {torch.__version__}: {counts} per step; losses differ by {worst:.1e}; median step PyTorch {plain:.3f} s, "
          f"with qkv {ours:.3f} s, ratio {plain / ours:.2f}")


def bench_attention(arguments):
    import torch

    import qkv.torch

    torch.set_num_threads(arguments.threads)
    qkv.set_num_threads(arguments.threads)
    shape = (arguments.batch, arguments.tokens, 12, 64)
    q, k, v = (torch.randn(shape, generator=torch.Generator().manual_seed(i)).transpose(1, 2).requires_grad_() for i in range(3))
    dout = torch.randn(shape).transpose(1, 2)
    sides = (torch.nn.functional.scaled_dot_product_attention, qkv.torch.scaled_dot_product_attention)
    forward, backward = [[], []], [[], []]
    for _ in range(arguments.steps):
        for side in (0, 1):
            start = time.perf_counter()
            out = sides[side](q, k, v, is_causal=True)
            middle = time.perf_counter()
            torch.autograd.grad(out, (q, k, v), dout)
            backward[side].append(time.perf_counter() - middle)
            forward[side].append(middle - start)
    for name, times in (("forward", forward), ("backward", backward)):
        plain, ours = (1e3 * statistics.median(t[1:]) for t in times)
        print(f"{name}: PyTorch {plain:.2f} ms, qkv {ours:.2f} ms, ratio {plain / ours:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["call", "gpt2", "attention"])
    parser.add_argument("--threads", type=int, help="threads [1 for call, otherwise one per core]")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    arguments.threads = arguments.threads or (1 if arguments.what == "call" else os.cpu_count())
    {"call": bench_call, "gpt2": bench_gpt2, "attention": bench_attention}[arguments.what](arguments)


if __name__ == "__main__":
    main()
