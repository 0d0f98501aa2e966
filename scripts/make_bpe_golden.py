#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/formats/golden/bpe_*: results of Hugging Face's `tokenizers` for a BPE trained by qkv.

    make_bpe_golden.py QKV        writes bpe_tokenizer.json (trained by QKV on the handwritten bpe_text.txt)
                                  and bpe_ids.json (ids of bpe_text.txt and some edge cases from `tokenizers`)
    make_bpe_golden.py QKV TEXT SIZE
                                  instead compares both on a text of any size, with a BPE of SIZE tokens trained on
                                  it: prints the number of equal ids, exits 1 if any differs

Needs the PyPI package tokenizers (0.23.3 was used); the tests do not.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "formats" / "golden"
SIZE = 700
PROBES = ["", " ", "  two  spaces ", "don't I'll WE'VE it's 's", "\n\n \t\n x", "a" * 70, "naïve Übung — “quotes” …", "你好，世界。",
          "🦙🦙 x²½ ٣٤", "\u00a0nbsp\u2003em\u200bzero", "e\u0301 combining", "<|endoftext|>", "0123456789 3.14159e-10",
          "if (a[i] != b->c) { return \"x\\n\"; }\r\n", "\u0001\u007f\x1c", "And God said, Let there be light: and there was light.",
          "ſ ſtrange ﬁ ligatures ＡＢ", "한국어 עברית हिन्दी ไทย"]


def learn(qkv, text, size, folder):
    tokens, tokenizer = folder / "tokens.bin", folder / "tokenizer.json"
    subprocess.run([qkv, "tokenize", "--data", str(text), "--tokenizer", f"bpe:{size}", "--val-fraction", "0", "--out",
                    str(tokens), "--tokenizer-out", str(tokenizer)], check=True)
    return tokens.read_bytes(), tokenizer


def ids_of(tokens):
    """The training tokens of a token file (docs/formats.md)."""
    width, = struct.unpack_from("<I", tokens, 12)
    count, = struct.unpack_from("<Q", tokens, 40)
    return struct.unpack_from(f"<{count}{'H' if width == 2 else 'I'}", tokens, 128)


def compare(qkv, text, size):
    with tempfile.TemporaryDirectory() as folder:
        tokens, tokenizer = learn(qkv, text, size, pathlib.Path(folder))
        ours = ids_of(tokens)
        theirs = Tokenizer.from_file(str(tokenizer)).encode(pathlib.Path(text).read_bytes().decode()).ids
    same = list(ours) == theirs
    agree = sum(a == b for a, b in zip(ours, theirs))
    print(f"{len(ours)} ids from qkv, {len(theirs)} from tokenizers, {agree} equal: {'same' if same else 'DIFFERENT'}")
    return same


def main():
    qkv = sys.argv[1]
    if len(sys.argv) == 4:
        sys.exit(0 if compare(qkv, sys.argv[2], int(sys.argv[3])) else 1)
    text = GOLDEN / "bpe_text.txt"
    with tempfile.TemporaryDirectory() as folder:
        _, tokenizer = learn(qkv, text, SIZE, pathlib.Path(folder))
        (GOLDEN / "bpe_tokenizer.json").write_bytes(tokenizer.read_bytes())
    theirs = Tokenizer.from_file(str(GOLDEN / "bpe_tokenizer.json"))
    # By default qkv encodes special tokens as text.
    theirs.encode_special_tokens = True
    found = {"size": SIZE, "text": theirs.encode(text.read_text()).ids,
             "probes": [{"text": probe, "ids": theirs.encode(probe).ids} for probe in PROBES]}
    (GOLDEN / "bpe_ids.json").write_text(json.dumps(found, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
