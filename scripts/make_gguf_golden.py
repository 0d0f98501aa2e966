#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/formats/golden/gguf_*: small random models written by the Python package `gguf`, and their logits
from PyTorch for the tokens 0, 7, 14, ... (mod 48), f32 [24, 48].

  gguf_llama   GQA, RoPE frequency factors, untied head, q8_0, q4_1, bf16 and f16 tensors
  gguf_gpt2    tied head, q4_0, q5_0, q5_1 and f32 tensors

Run it in an environment with `gguf`, `numpy` and `torch`; the tests need none of them.
"""
import pathlib

import gguf
import numpy as np
import torch

import check_gguf_model as check

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "formats" / "golden"
VOCAB, CTX, D_MODEL, LAYERS = 48, 24, 64, 2
Q = gguf.GGMLQuantizationType


class File:
    def __init__(self, family, seed):
        self.path = str(OUT / f"gguf_{family}.gguf")
        self.writer = gguf.GGUFWriter(self.path, family)
        self.random = np.random.default_rng(seed)
        self.writer.add_block_count(LAYERS)
        self.writer.add_context_length(CTX)
        self.writer.add_embedding_length(D_MODEL)
        self.writer.add_head_count(4)
        self.writer.add_tokenizer_model("gpt2")
        self.writer.add_tokenizer_pre("gpt-2")
        letters = [chr(ord("!") + i) for i in range(VOCAB - 2)]
        self.writer.add_token_list(letters + ['"#', "<|endoftext|>"])
        self.writer.add_token_types([1] * (VOCAB - 1) + [3])
        self.writer.add_token_merges(['" #'])
        self.writer.add_eos_token_id(VOCAB - 1)

    def tensor(self, name, shape, kind, mean=0.0, deviation=0.15):
        """shape: slowest axis first."""
        values = (mean + deviation * self.random.standard_normal(shape)).astype(np.float32)
        if kind == Q.F32:
            self.writer.add_tensor(name, values)
        else:
            self.writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)

    def done(self, forward):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        tokens = torch.arange(CTX) * 7 % VOCAB
        with torch.no_grad():
            logits = forward(check.Weights(self.path), tokens)
        np.save(self.path.replace(".gguf", "_logits.npy"), logits.numpy().astype(np.float32))


def llama():
    f = File("llama", 1)
    f.writer.add_feed_forward_length(96)
    f.writer.add_head_count_kv(2)
    f.writer.add_layer_norm_rms_eps(1e-5)
    f.writer.add_rope_freq_base(10000.0)
    f.writer.add_rope_dimension_count(16)
    f.writer.add_vocab_size(VOCAB)
    f.writer.add_tensor("rope_freqs.weight", np.array([1, 1, 1, 1.5, 2, 4, 8, 8], dtype=np.float32))
    f.tensor("token_embd.weight", (VOCAB, D_MODEL), Q.Q8_0)
    f.tensor("output.weight", (VOCAB, D_MODEL), Q.BF16)
    f.tensor("output_norm.weight", (D_MODEL,), Q.F32, 1.0)
    for i in range(LAYERS):
        b = f"blk.{i}."
        for name in ("attn_norm", "ffn_norm"):
            f.tensor(b + name + ".weight", (D_MODEL,), Q.F32, 1.0)
        f.tensor(b + "attn_q.weight", (D_MODEL, D_MODEL), Q.Q4_1)
        f.tensor(b + "attn_k.weight", (32, D_MODEL), Q.Q8_0)
        f.tensor(b + "attn_v.weight", (32, D_MODEL), Q.F16)
        f.tensor(b + "attn_output.weight", (D_MODEL, D_MODEL), Q.Q4_1)
        f.tensor(b + "ffn_gate.weight", (96, D_MODEL), Q.Q8_0)
        f.tensor(b + "ffn_up.weight", (96, D_MODEL), Q.Q4_1)
        f.tensor(b + "ffn_down.weight", (D_MODEL, 96), Q.Q4_1)
    f.done(check.llama)


def gpt2():
    f = File("gpt2", 2)
    f.writer.add_feed_forward_length(128)
    f.writer.add_layer_norm_eps(1e-5)
    f.tensor("token_embd.weight", (VOCAB, D_MODEL), Q.Q8_0)
    f.tensor("position_embd.weight", (CTX, D_MODEL), Q.F32)

    def both(name, shape, kind, mean=0.0):
        f.tensor(name + ".weight", shape, kind, mean)
        f.tensor(name + ".bias", shape[:1], Q.F32)

    both("output_norm", (D_MODEL,), Q.F32, 1.0)
    for i in range(LAYERS):
        b = f"blk.{i}."
        both(b + "attn_norm", (D_MODEL,), Q.F32, 1.0)
        both(b + "attn_qkv", (3 * D_MODEL, D_MODEL), Q.Q5_1)
        both(b + "attn_output", (D_MODEL, D_MODEL), Q.Q5_0)
        both(b + "ffn_norm", (D_MODEL,), Q.F32, 1.0)
        both(b + "ffn_up", (128, D_MODEL), Q.Q4_0)
        both(b + "ffn_down", (D_MODEL, 128), Q.F32)
    f.done(check.gpt2)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    llama()
    gpt2()
