#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the perplexity of a text under a GGUF model: `qkv eval` and transformers on the dequantized weights.

    check_perplexity.py QKV FILE.gguf TEXT [--every 20] [--bytes N] [--ctx 512]

The text (its first N bytes) is split into blocks of lines of about 2000 bytes, and every EVERY-th block is used, to
cover all of it; this sample is split into windows of CTX tokens, and both predict each token of a window from the
previous ones. Exits 1 unless they agree to three digits. Needs torch, transformers and gguf.
"""
import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM


def token_ids(qkv, model, text, folder):
    """The token ids from qkv; scripts/check_gguf_model.py compares them with llama.cpp. Layout: docs/formats.md."""
    path = f"{folder}/tokens.bin"
    subprocess.run([qkv, "tokenize", "--data", text, "--tokenizer", model, "--out", path, "--val-fraction", "0"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    data = pathlib.Path(path).read_bytes()
    width, = struct.unpack_from("<I", data, 12)
    count, = struct.unpack_from("<Q", data, 40)
    return np.frombuffer(data, "<u2" if width == 2 else "<u4", count, 128).astype(np.int64)


def spread(text, every):
    """Every `every`-th block of lines of at least 2000 bytes."""
    stretches = [b""]
    for line in text.splitlines(keepends=True):
        if len(stretches[-1]) >= 2000:
            stretches.append(b"")
        stretches[-1] += line
    return b"".join(stretches[::every])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("qkv")
    parser.add_argument("file")
    parser.add_argument("text")
    parser.add_argument("--bytes", type=int, help="use only the first N bytes of the text")
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--ctx", type=int, default=512)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = f"{folder}/text.txt"
        all_bytes = pathlib.Path(options.text).read_bytes()[: options.bytes]
        taken = spread(all_bytes, options.every)
        pathlib.Path(text).write_bytes(taken)
        ids = token_ids(options.qkv, options.file, text, folder)
        out = subprocess.run([options.qkv, "eval", "-m", options.file, "--data", text, "--ctx-len", str(options.ctx), "--json"],
                             check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        ours = json.loads(out)
        path = pathlib.Path(options.file)
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
        nats = 0.0
        with torch.no_grad():
            for start in range(0, len(ids) - 1, options.ctx):
                window = torch.from_numpy(ids[start : start + options.ctx + 1])
                logits = model(window[None, :-1]).logits[0]
                nats += float(F.cross_entropy(logits.double(), window[1:], reduction="sum"))
        theirs = math.exp(nats / (len(ids) - 1))
    print(f"{len(ids)} tokens, {len(taken)} of {len(all_bytes)} bytes: perplexity {ours['perplexity']:.4f} (qkv), {theirs:.4f} (transformers)")
    sys.exit(0 if ours["tokens"] == len(ids) and abs(ours["perplexity"] / theirs - 1) < 5e-4 else 1)


if __name__ == "__main__":
    main()
