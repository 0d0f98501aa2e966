#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/core/golden/: results of the Python package `gguf` for blocks of numbers.

  TYPE_blocks.bin   random blocks, as in a file
  TYPE_values.bin   the same, dequantized to f32
  numbers.bin       f32: normal numbers at many scales, ties, zeros, numbers whose scale is subnormal in f16
  TYPE_written.bin  numbers.bin, quantized

Run it in an environment with the packages `gguf` and `numpy`; the tests need neither.
"""
import pathlib

import gguf
import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "core" / "golden"
READ = {"q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q8_0": (0,), "q4_k": (0, 2), "q5_k": (0, 2),
        "q6_k": (208,)}  # offsets of the f16 numbers in a block
WRITTEN = ["bf16", "q8_0", "q4_0", "q4_1"]


def random_blocks(random, name, count):
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in READ[name]:
        scales = (random.standard_normal(count) * 10.0 ** random.integers(-7, 3, count)).astype(np.float16)
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(count, 2)
    return blocks


def numbers(random):
    rows = [random.standard_normal(32) * 10.0 ** e for e in range(-12, 5) for _ in range(4)]
    rows.append(np.zeros(32))
    rows.append(-np.arange(32) / 4.0)
    rows.append((np.arange(32) - 16) * 0.5)  # ties
    rows.append(np.full(32, 0.3))
    rows.append(np.r_[np.full(16, -2.0), np.full(16, 2.0)])  # two values of the largest magnitude
    rows.append(np.r_[127.0, np.arange(31) + 0.5])
    return np.stack(rows).astype(np.float32)


def main():
    random = np.random.default_rng(7)
    OUT.mkdir(parents=True, exist_ok=True)
    for name in READ:
        blocks = random_blocks(random, name, 6 if name.endswith("k") else 24)
        kind = gguf.GGMLQuantizationType[name.upper()]
        (OUT / f"{name}_blocks.bin").write_bytes(blocks.tobytes())
        (OUT / f"{name}_values.bin").write_bytes(gguf.dequantize(blocks, kind).astype("<f4").tobytes())
    x = numbers(random)
    (OUT / "numbers.bin").write_bytes(x.tobytes())
    for name in WRITTEN:
        (OUT / f"{name}_written.bin").write_bytes(gguf.quantize(x, gguf.GGMLQuantizationType[name.upper()]).tobytes())


if __name__ == "__main__":
    main()
