#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that `transformers` loads the Hugging Face directories written by qkv and computes the same logits.

    check_hf.py QKV

Each model of tests/formats/golden is converted by `qkv convert`: through a qkv directory, to one file and to shards, in
its own type and in F32; the logits must be the golden ones. Needs torch, transformers and tokenizers.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "formats" / "golden"
TYPES = {"hf_gpt2": "f32", "hf_gpt2_untied": "f16", "hf_llama": "f32", "hf_llama3": "bf16", "hf_llama_linear": "f32"}


def main():
    qkv, good = sys.argv[1], True
    with tempfile.TemporaryDirectory() as folder:
        for name, own in TYPES.items():
            middle = f"{folder}/{name}-qkv"
            subprocess.run([qkv, "convert", GOLDEN / name, middle], check=True, stdout=subprocess.DEVNULL)
            for kind, shard in ((own, "5000000000"), ("f32", "9000")):
                out = f"{folder}/{name}-{kind}-{shard}"
                subprocess.run([qkv, "convert", middle, out, "--to", "hf", "--type", kind, "--shard-bytes", shard], check=True,
                               stdout=subprocess.DEVNULL)
                model, report = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, output_loading_info=True)
                tokens = torch.tensor(np.load(GOLDEN / f"{name}_tokens.npy").astype(np.int64))
                logits = model.eval()(tokens).logits.detach().numpy()
                wanted = np.load(GOLDEN / f"{name}_logits.npy")
                off = float(np.abs(logits - wanted).max() / np.abs(wanted).max())
                odd = {k: v for k, v in report.items() if v and k != "error_msgs"}
                text = "in the beginning there was \u00e9t\u00e9"
                same = Tokenizer.from_file(f"{out}/tokenizer.json").encode(text).ids == \
                    Tokenizer.from_file(str(GOLDEN / name / "tokenizer.json")).encode(text).ids
                files = len(list(pathlib.Path(out).glob("*.safetensors")))
                print(f"{name:16} {kind:5} {files} file(s): logits differ by {off:.1e}, tokenizer {'same' if same else 'OTHER'}"
                      f"{', ' + str(odd) if odd else ''}")
                good &= off < 1e-6 and same and not odd
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
