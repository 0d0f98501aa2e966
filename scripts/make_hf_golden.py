#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/formats/golden/hf_*: tiny random models created and saved by Hugging Face's `transformers`, and its
results for them.

    NAME/            output of save_pretrained(): config.json, generation_config.json, model.safetensors (or shards)
    NAME_WHAT.npy    tokens [batch, ctx], targets [batch, ctx] (-1: ignored), logits [batch, ctx, vocab], loss [1]
    NAME_gradients.safetensors   d(mean loss) / d(parameter), under the names of the model

All share one small byte-level BPE tokenizer.json, trained here by `tokenizers`.
Needs torch, transformers, tokenizers and safetensors; the tests need none of them.
Run: python3 scripts/make_hf_golden.py
"""
import pathlib
import shutil

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "formats" / "golden"
VOCAB, CTX, BATCH = 272, 10, 2

GPT2 = dict(vocab_size=VOCAB, n_positions=16, n_embd=12, n_layer=2, n_head=3, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            bos_token_id=256, eos_token_id=256)
LLAMA = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=[256, 257])
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 100.0}
# name: (model, stored type, largest shard)
MODELS = {
    "hf_gpt2": (lambda: GPT2LMHeadModel(GPT2Config(**GPT2)), torch.float32, "5GB"),
    "hf_gpt2_untied": (lambda: GPT2LMHeadModel(GPT2Config(**GPT2, n_inner=20, tie_word_embeddings=False)), torch.float16,
                       "5GB"),
    "hf_llama": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=True)), torch.float32, "5GB"),
    "hf_llama3": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, head_dim=8, rope_parameters=LLAMA3, attention_bias=True,
                                                       mlp_bias=True)), torch.bfloat16, "12KB"),
    "hf_llama_linear": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, rope_parameters={
        "rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0})), torch.float32, "5GB"),
}


def train_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(["in the beginning there was the word, and the word was there"] * 3, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(77)
    tokenizer = train_tokenizer()
    for name, (make, dtype, shard) in MODELS.items():
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        model = make()
        with torch.no_grad():
            for key, value in model.named_parameters():  # larger than a usual initialization, to expose errors
                noise = torch.randn(value.shape, generator=generator) * 0.3
                value.copy_(noise + (1 if key.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight", "norm.weight")) else 0))
        model = model.to(dtype)
        model.save_pretrained(folder, max_shard_size=shard)
        tokenizer.save(str(folder / "tokenizer.json"))
        model = type(model).from_pretrained(folder, dtype=torch.float32).eval()  # compute in f32 on the stored weights
        tokens = torch.randint(0, VOCAB, (BATCH, CTX), generator=generator)
        targets = torch.randint(0, VOCAB, (BATCH, CTX), generator=generator)
        targets[1, 4:6] = -1
        logits = model(tokens).logits
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1), ignore_index=-1)
        loss.backward()
        for what, array in (("tokens", tokens.numpy().astype(np.int32)), ("targets", targets.numpy().astype(np.int32)),
                            ("logits", logits.detach().numpy()), ("loss", np.array([loss.item()]))):
            np.save(OUT / f"{name}_{what}.npy", array)
        save_file({key: value.grad for key, value in model.named_parameters()}, OUT / f"{name}_gradients.safetensors")
        print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, loss {loss.item():.6f}, "
              f"files {sorted(p.name for p in folder.iterdir())}")


if __name__ == "__main__":
    main()
