#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/model/golden/: PyTorch results for three tiny models, computed in f64.

For each of andrea, gpt2 and llama (the shapes of tests/model/tiny_models.h), as NAME_WHAT.npy:
  tokens, targets  [batch, ctx] int32; target -1 is ignored
  parameters       f32, all tensors concatenated in the flat order of src/model/parameters.h
  logits           [batch, ctx, vocab] f32
  gradients        f32, of the mean loss over valid targets, in the layout of the parameters
  losses           [11] f64: the loss before each of ten AdamW steps on that batch, and after the last
AdamW: learning rate 0.01, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1 on matrices only, no clipping.

Needs Debian's python3-torch and python3-numpy; the tests need neither. Run: /usr/bin/python3 scripts/make_golden.py
"""
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "model" / "golden"
N_LAYER, N_HEAD, D_MODEL, VOCAB, CTX, BATCH = 2, 4, 16, 19, 12, 3
HEAD_DIM = D_MODEL // N_HEAD


class Shape:
    def __init__(self, name, n_kv_head, d_ff, layernorm, affine, embedding_norm, final_norm, activation, rotary, bias,
                 tied):
        self.__dict__.update(locals())

    def parameters(self):
        """(name, shape) in the flat order."""
        kv = self.n_kv_head * HEAD_DIM

        def norm(name):
            gain = [(name + ".gain", [D_MODEL])] if self.affine else []
            return gain + ([(name + ".bias", [D_MODEL])] if self.affine and self.layernorm else [])

        def product(prefix, what, size_in, size_out):
            sep = "_" if len(what) > 1 else ""
            weight = [(prefix + "w" + sep + what, [size_in, size_out])]
            return weight + ([(prefix + "b" + sep + what, [size_out])] if self.bias else [])

        out = [("token_embedding", [VOCAB, D_MODEL])]
        out += [] if self.rotary else [("position_embedding", [CTX, D_MODEL])]
        out += norm("embedding_norm") if self.embedding_norm else []
        for i in range(N_LAYER):
            p = f"layers.{i}."
            out += norm(p + "attention_norm")
            out += product(p, "q", D_MODEL, D_MODEL) + product(p, "k", D_MODEL, kv) + product(p, "v", D_MODEL, kv)
            out += product(p, "o", D_MODEL, D_MODEL)
            out += norm(p + "mlp_norm")
            out += product(p, "gate", D_MODEL, self.d_ff) if self.activation == "swiglu" else []
            out += product(p, "up", D_MODEL, self.d_ff) + product(p, "down", self.d_ff, D_MODEL)
        out += norm("final_norm") if self.final_norm else []
        return out + ([] if self.tied else [("head", [D_MODEL, VOCAB])])


SHAPES = [
    Shape("andrea", N_HEAD, 64, False, False, True, False, "relu", False, False, False),
    Shape("gpt2", N_HEAD, 64, True, True, False, True, "gelu", False, True, True),
    Shape("llama", 2, 24, False, True, False, True, "swiglu", True, False, True),
]


def norm(shape, w, name, x):
    gain, bias = w.get(name + ".gain"), w.get(name + ".bias")
    if shape.layernorm:
        return F.layer_norm(x, [D_MODEL], gain, bias, 1e-5)
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
    return y if gain is None else y * gain


def product(w, name, x):
    prefix, _, what = name.rpartition(".")
    y = x @ w[name]
    bias = w.get(prefix + ".b" + what[1:])
    return y if bias is None else y + bias


def turn(x):
    """RoPE, rotate_half form; x [batch, heads, ctx, head_dim]."""
    half = HEAD_DIM // 2
    frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float64) * 2 / HEAD_DIM)
    angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), frequencies).repeat(1, 2)
    rotated = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * angles.cos() + rotated * angles.sin()


def attention(shape, w, p, x):
    batch, ctx, _ = x.shape
    heads = [product(w, p + n, x).view(batch, ctx, -1, HEAD_DIM).transpose(1, 2) for n in ("wq", "wk", "wv")]
    q, k, v = heads
    if shape.rotary:
        q, k = turn(q), turn(k)
    k, v = (t.repeat_interleave(N_HEAD // shape.n_kv_head, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM)
    future = torch.ones(ctx, ctx, dtype=torch.bool).triu(1)
    probs = scores.masked_fill(future, float("-inf")).softmax(-1)
    return product(w, p + "wo", (probs @ v).transpose(1, 2).reshape(batch, ctx, -1))


def mlp(shape, w, p, x):
    up = product(w, p + "w_up", x)
    if shape.activation == "relu":
        a = F.relu(up)
    elif shape.activation == "gelu":
        a = F.gelu(up, approximate="tanh")
    else:
        a = F.silu(product(w, p + "w_gate", x)) * up
    return product(w, p + "w_down", a)


def logits_of(shape, w, tokens):
    x = w["token_embedding"][tokens]
    if not shape.rotary:
        x = x + w["position_embedding"][: tokens.shape[1]]
    if shape.embedding_norm:
        x = norm(shape, w, "embedding_norm", x)
    for i in range(N_LAYER):
        p = f"layers.{i}."
        x = x + attention(shape, w, p, norm(shape, w, p + "attention_norm", x))
        x = x + mlp(shape, w, p, norm(shape, w, p + "mlp_norm", x))
    if shape.final_norm:
        x = norm(shape, w, "final_norm", x)
    return x @ (w["token_embedding"].T if shape.tied else w["head"])


def loss_of(shape, w, tokens, targets):
    return F.cross_entropy(logits_of(shape, w, tokens).reshape(-1, VOCAB), targets.reshape(-1), ignore_index=-1)


def flat(tensors):
    return np.concatenate([t.detach().numpy().reshape(-1) for t in tensors]).astype(np.float32)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(20240)
    for shape in SHAPES:
        w = {}
        for name, size in shape.parameters():
            values = torch.randn(size, generator=generator, dtype=torch.float64) * 0.2
            values = values + 1 if name.endswith(".gain") else values
            w[name] = values.float().double().requires_grad_()
        tokens = torch.randint(0, VOCAB, (BATCH, CTX), generator=generator)
        targets = torch.randint(0, VOCAB, (BATCH, CTX), generator=generator)
        targets[0, 3] = targets[1, 5:] = -1

        def save(what, array):
            np.save(OUT / f"{shape.name}_{what}.npy", array)

        save("tokens", tokens.numpy().astype(np.int32))
        save("targets", targets.numpy().astype(np.int32))
        save("parameters", flat(w.values()))
        save("logits", logits_of(shape, w, tokens).detach().numpy().astype(np.float32))
        loss_of(shape, w, tokens, targets).backward()
        save("gradients", flat(t.grad for t in w.values()))

        groups = [{"params": [t for t in w.values() if (t.dim() == 2) == decays], "weight_decay": 0.1 * decays}
                  for decays in (True, False)]
        optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=0.01, betas=(0.9, 0.95), eps=1e-8)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = loss_of(shape, w, tokens, targets)
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
        losses.append(loss_of(shape, w, tokens, targets).item())
        save("losses", np.array(losses))
        print(f"{shape.name}: {sum(t.numel() for t in w.values())} parameters, loss {losses[0]:.6f} -> {losses[-1]:.6f}")


if __name__ == "__main__":
    main()
