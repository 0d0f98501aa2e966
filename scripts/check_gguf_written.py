#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF model in every type that qkv supports and checks the files with the reference readers: the package
`gguf` opens each, and every tensor is bit-identical to what `gguf` makes of the source; llama.cpp (`llama_cpp`, PyPI:
llama-cpp-python) opens each, and its logits are close to those of qkv.

    check_gguf_written.py QKV MODEL_LOGITS SRC.gguf [--tokens 64] [--types f32,f16,bf16,q8_0,q4_0,q4_1]

QKV is the program, MODEL_LOGITS the one of tests/formats/model_logits.cc. Needs gguf and numpy; without llama_cpp that
part is skipped with a message.
"""
import argparse
import pathlib
import subprocess
import tempfile

import gguf
import numpy as np

try:
    import llama_cpp
except ImportError:
    llama_cpp = None

TYPES = "f32,f16,bf16,q8_0,q4_0,q4_1"


def rows(tensor):
    shape = tuple(int(n) for n in reversed(tensor.shape))
    return gguf.dequantize(tensor.data, tensor.tensor_type).reshape(shape).astype(np.float32)


def compare_bits(source, written):
    """The number of tensors in the written file that are bit-identical to the converted source."""
    ours = {t.name: t for t in gguf.GGUFReader(written).tensors}
    theirs = [t for t in gguf.GGUFReader(source).tensors]
    kinds = {}
    for tensor in theirs:
        mine = ours[tensor.name]
        kinds[mine.tensor_type.name] = kinds.get(mine.tensor_type.name, 0) + 1
        expected = gguf.quantize(rows(tensor), mine.tensor_type)
        if mine.data.tobytes() != expected.tobytes():
            raise SystemExit(f"{written}: {tensor.name} ({mine.tensor_type.name}) has different bits")
    if len(ours) != len(theirs):
        raise SystemExit(f"{written}: {len(ours)} tensors; expected {len(theirs)}")
    return ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))


def llama_logits(path, tokens):
    model = llama_cpp.Llama(path, n_ctx=len(tokens) + 8, n_batch=len(tokens), logits_all=True, verbose=False,
                            n_threads=2, type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)
    model.eval(tokens.tolist())
    return np.array(model.scores[: len(tokens)])


def compare_logits(program, path, tokens_file):
    out = path + ".npy"
    subprocess.run([program, path, tokens_file, out], check=True)
    ours, theirs = np.load(out)[0], llama_logits(path, np.load(tokens_file))
    worst = np.abs(ours - theirs).max() / np.abs(theirs).max()
    equal = int((ours.argmax(1) == theirs.argmax(1)).sum())
    return f"llama.cpp: logits within {worst:.1e} of the largest, most probable token equal in {equal} of {len(ours)}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("qkv")
    parser.add_argument("program")
    parser.add_argument("source")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--types", default=TYPES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tokens = str(pathlib.Path(folder) / "tokens.npy")
        vocabulary = next(int(t.shape[1]) for t in gguf.GGUFReader(options.source).tensors
                          if t.name == "token_embd.weight")
        np.save(tokens, (np.arange(options.tokens) * 7919 % vocabulary).astype(np.int32))
        for kind in options.types.split(","):
            path = str(pathlib.Path(folder) / f"{kind}.gguf")
            subprocess.run([options.qkv, "convert", options.source, path, "--type", kind], check=True,
                           stdout=subprocess.DEVNULL)
            print(f"{kind}: bit-identical to the package gguf ({compare_bits(options.source, path)})", flush=True)
            print("  " + (compare_logits(options.program, path, tokens) if llama_cpp else "llama_cpp is not installed"),
                  flush=True)
            pathlib.Path(path).unlink()


if __name__ == "__main__":
    main()
