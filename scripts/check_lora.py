#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that PEFT and qkv load each other's adapters and compute the same logits with them.

    check_lora.py QKV

Two models of tests/formats/golden are adapted on a small text by `qkv train --lora`; PEFT adds the adapters to the model
in transformers, `qkv convert --lora` merges them, and the logits must agree. Then the reverse, with adapters saved by
PEFT. Needs torch, transformers and peft.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "formats" / "golden"
CASES = {"hf_llama": ["wq,wk,wv,wo", "wq,wv,w_gate,w_up,w_down"], "hf_gpt2": ["wq,wk,wv,wo", "wq,wk,wv,w_up,w_down"]}
PEFT_TARGETS = {"hf_llama": ["q_proj", "o_proj", "down_proj"], "hf_gpt2": ["c_attn", "c_proj"]}
MOST = 1e-4


def run(*arguments):
    subprocess.run([str(a) for a in arguments], check=True, stdout=subprocess.DEVNULL)


def load(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def logits(model, tokens):
    with torch.no_grad():
        return model(tokens).logits.numpy()


def compare(what, found, wanted, before):
    off = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    moved = float(np.abs(wanted - before).max() / np.abs(before).max())
    print(f"{what:45} logits differ by {off:.1e}; the adapters change them by {moved:.1e}", flush=True)
    return off < MOST < moved


def main():
    qkv, good = sys.argv[1], True
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        text.write_text("".join(f"in the beginning there was {i * 7 % 97}, and it was good.\n" for i in range(300)))
        for name, choices in CASES.items():
            source = GOLDEN / name
            tokens = torch.tensor(np.load(GOLDEN / f"{name}_tokens.npy").astype(np.int64))
            before = logits(load(source), tokens)
            for n, targets in enumerate(choices):
                out, merged = f"{folder}/{name}-{n}", f"{folder}/{name}-{n}-merged"
                run(qkv, "train", "--init", source, "--lora", "2,6", "--lora-targets", targets, "--data", text, "--out", out,
                    "--steps", 20, "--batch-size", 2, "--learning-rate", 0.02, "--warmup-steps", 0, "--eval-iters", 1,
                    "--dtype", "f32", "--sample-interval", 0)
                run(qkv, "convert", f"{out}/base", merged, "--lora", out, "--to", "hf")
                ours = logits(load(merged), tokens)
                theirs = logits(PeftModel.from_pretrained(load(source), out), tokens)
                good &= compare(f"{name}, qkv's adapters of {targets}", ours, theirs, before)
            config = LoraConfig(r=2, lora_alpha=5, target_modules=PEFT_TARGETS[name], use_rslora=name == "hf_gpt2",
                                init_lora_weights=False, fan_in_fan_out=name == "hf_gpt2")
            torch.manual_seed(3)
            made = get_peft_model(load(source), config).eval()
            made.save_pretrained(f"{folder}/{name}-peft")
            run(qkv, "convert", source, f"{folder}/{name}-joined", "--lora", f"{folder}/{name}-peft", "--to", "hf")
            good &= compare(f"{name}, PEFT's adapters of {','.join(PEFT_TARGETS[name])}",
                            logits(load(f"{folder}/{name}-joined"), tokens), logits(made, tokens), before)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
