#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares qkv on a LLaMA or GPT-2 GGUF file with PyTorch on the weights dequantized by the package `gguf`, in f32:
logits over a text, most probable tokens and loss; and the token ids with llama.cpp, if `llama_cpp` (PyPI:
llama-cpp-python) can be imported.

    check_gguf_model.py MODEL_LOGITS FILE.gguf TEXT [--tokens 512]

MODEL_LOGITS is the program of tests/formats/model_logits.cc (target model_logits). Needs gguf, numpy and torch.
"""
import argparse
import pathlib
import subprocess
import tempfile

import gguf
import numpy as np
import torch
import torch.nn.functional as F


class Weights:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in reader.tensors}
        self.fields = reader.fields
        self.family = self.key("general.architecture")

    def key(self, name, otherwise=None):
        return self.fields[name].contents() if name in self.fields else otherwise

    def size(self, name, otherwise=None):
        return self.key(f"{self.family}.{name}", otherwise)

    def __contains__(self, name):
        return name in self.tensors

    def __getitem__(self, name):
        t = self.tensors[name]
        values = gguf.dequantize(t.data, t.tensor_type).reshape(tuple(int(n) for n in reversed(t.shape)))
        return torch.from_numpy(np.array(values, dtype=np.float32))

    def linear(self, x, name):
        bias = self[name + ".bias"] if name + ".bias" in self else None
        return F.linear(x, self[name + ".weight"], bias)


def causal(q, k, v):
    """[ctx, heads, d] each; k and v may have fewer heads."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    out = F.scaled_dot_product_attention(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), is_causal=True)
    return out.transpose(0, 1).flatten(1)


def turned(x, theta, factors):
    """RoPE in GGUF's llama layout: adjacent pairs. x [ctx, heads, d]"""
    d = x.shape[2]
    frequency = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d) / factors
    angle = torch.arange(x.shape[0], dtype=torch.float64)[:, None, None] * frequency
    cos, sin = angle.cos().float(), angle.sin().float()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(2)


def llama(w, tokens):
    heads, d_model = w.size("attention.head_count"), w.size("embedding_length")
    d, kv = w.size("attention.key_length", d_model // heads), w.size("attention.head_count_kv", heads)
    eps, theta = w.size("attention.layer_norm_rms_epsilon"), w.size("rope.freq_base", 10000.0)
    factors = w["rope_freqs.weight"].double() if "rope_freqs.weight" in w else torch.ones(d // 2)

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w[name + ".weight"]

    x = w["token_embd.weight"][tokens]
    for i in range(w.size("block_count")):
        b = f"blk.{i}."
        xn = norm(x, b + "attn_norm")
        q = turned(w.linear(xn, b + "attn_q").unflatten(1, (heads, d)), theta, factors)
        k = turned(w.linear(xn, b + "attn_k").unflatten(1, (kv, d)), theta, factors)
        v = w.linear(xn, b + "attn_v").unflatten(1, (kv, -1))
        x = x + w.linear(causal(q, k, v), b + "attn_output")
        xn = norm(x, b + "ffn_norm")
        x = x + w.linear(F.silu(w.linear(xn, b + "ffn_gate")) * w.linear(xn, b + "ffn_up"), b + "ffn_down")
    head = "output.weight" if "output.weight" in w else "token_embd.weight"
    return norm(x, "output_norm") @ w[head].T


def gpt2(w, tokens):
    heads, eps = w.size("attention.head_count"), w.size("attention.layer_norm_epsilon")

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps)

    x = w["token_embd.weight"][tokens] + w["position_embd.weight"][: len(tokens)]
    for i in range(w.size("block_count")):
        b = f"blk.{i}."
        q, k, v = (t.unflatten(1, (heads, -1)) for t in w.linear(norm(x, b + "attn_norm"), b + "attn_qkv").chunk(3, 1))
        x = x + w.linear(causal(q, k, v), b + "attn_output")
        x = x + w.linear(F.gelu(w.linear(norm(x, b + "ffn_norm"), b + "ffn_up"), approximate="tanh"), b + "ffn_down")
    head = "output.weight" if "output.weight" in w else "token_embd.weight"
    return norm(x, "output_norm") @ w[head].T


def compare(ours, theirs, tokens):
    """Compares and prints [tokens, vocab] logits."""
    scale = theirs.abs().max()
    worst = (ours - theirs).abs().max() / scale
    top, other = ours.argmax(1), theirs.argmax(1)
    near = theirs.topk(2, 1).values
    ties = (near[:, 0] - near[:, 1]) < 1e-3
    apart = int(((top != other) & ~ties).sum())
    targets = torch.from_numpy(tokens[1:].astype(np.int64))
    losses = [float(F.cross_entropy(x[:-1].double(), targets)) for x in (ours, theirs)]
    print(f"logits: largest difference {worst:.2e} of the largest logit {scale:.2f}")
    print(f"most probable token: {int((top == other).sum())} of {len(top)} equal, {apart} different without a tie")
    print(f"loss: {losses[0]:.6f} and {losses[1]:.6f}")
    return worst < 2e-3 and apart == 0 and abs(losses[0] - losses[1]) < 1e-3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("file")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=512)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ids_file, cut_file, out_file = (str(pathlib.Path(folder) / n) for n in ("ids.npy", "cut.npy", "logits.npy"))
        subprocess.run([options.program, options.file, ids_file, "-", options.text], check=True)
        ids = np.load(ids_file)
        print(f"{len(ids)} tokens")
        good = True
        try:
            import llama_cpp
            vocabulary = llama_cpp.Llama(options.file, vocab_only=True, verbose=False)
            theirs = vocabulary.tokenize(pathlib.Path(options.text).read_bytes(), add_bos=False, special=False)
            good = theirs == ids.tolist()
            print("token ids: " + ("same as llama.cpp" if good else "DIFFERENT from llama.cpp"))
        except ImportError:
            print("token ids: not compared, llama_cpp is not installed")
        tokens = ids[: options.tokens]
        np.save(cut_file, tokens)
        subprocess.run([options.program, options.file, cut_file, out_file], check=True)
        ours = torch.from_numpy(np.load(out_file)[0])
        weights = Weights(options.file)
        with torch.no_grad():
            theirs = {"llama": llama, "gpt2": gpt2}[weights.family](weights, torch.from_numpy(tokens.astype(np.int64)))
        good = compare(ours, theirs, tokens) and good
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
