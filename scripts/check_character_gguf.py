#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that character-level BPE, which qkv writes to GGUF as pieces with scores, gives the same ids in llama.cpp as
in `tokenizers`.

    check_character_gguf.py QKV TEXT [--strings 3000]

A sentencepiece model trained on the first megabyte of TEXT is converted to a tokenizer.json as in transformers (all
merges of two pieces, best first) of a small random LLaMA, which `qkv convert` writes as GGUF. Lines of TEXT and random
strings must get the same ids from `tokenizers` and llama.cpp. Needs sentencepiece, torch, transformers and xllamacpp.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import urllib.request

import sentencepiece
import xllamacpp
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import LlamaConfig, LlamaForCausalLM

MARK = "\u2581"
PARTS = [" ", "  ", "a", "the ", "LORD", "\u00e9", "\u4e2d", "\U0001f600", "\n", "\t", "1", "'s", "Ab", ",", "e\u0301", "and", "s"]


def trained(text, folder):
    """The pieces of a model of 1500, by id, and the number of special ones: <unk>, <s>, </s> and the bytes."""
    sentencepiece.SentencePieceTrainer.train(input=text, model_prefix=f"{folder}/m", vocab_size=1500, model_type="bpe",
                                             byte_fallback=True, num_threads=1, minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/m.model")
    return [model.id_to_piece(i) for i in range(model.get_piece_size())], 3 + 256


def tokenizer_of(pieces, first):
    ids = {piece: i for i, piece in enumerate(pieces)}
    words = set(pieces[first:])
    merges = []
    for piece in pieces[first:]:  # scores decrease with ids
        pairs = [(piece[:at], piece[at:]) for at in range(1, len(piece)) if piece[:at] in words and piece[at:] in words]
        merges += sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False) for piece in pieces[:3]])
    return tokenizer


def served(path):
    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.n_ctx, parameters.cpuparams.n_threads = path, 64, 1
    parameters.port, parameters.warmup = 18731, False
    return xllamacpp.Server(parameters)


def ids_of(server, text):
    body = json.dumps({"content": text, "add_special": False, "parse_special": False}).encode()
    request = urllib.request.Request(server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))["tokens"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("qkv")
    parser.add_argument("text")
    parser.add_argument("--strings", type=int, default=3000)
    options = parser.parse_args()
    text = pathlib.Path(options.text).read_bytes()[:1_000_000].decode(errors="ignore")
    with tempfile.TemporaryDirectory() as folder:
        part = pathlib.Path(folder, "text.txt")
        part.write_text(text, encoding="utf-8")
        tokenizer = tokenizer_of(*trained(str(part), folder))
        LlamaForCausalLM(LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=64,
                                     num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=64)
                         ).save_pretrained(f"{folder}/hf")
        tokenizer.save(f"{folder}/hf/tokenizer.json")
        subprocess.run([options.qkv, "convert", f"{folder}/hf", f"{folder}/m.gguf", "--type", "f32"], check=True,
                       stdout=subprocess.DEVNULL)
        server, draw = served(f"{folder}/m.gguf"), random.Random(1)
        strings = [line for line in text.splitlines() if line][: options.strings // 2]
        strings += ["".join(draw.choices(PARTS, k=draw.randint(1, 25))) for _ in range(options.strings - len(strings))]
        other = [s for s in strings if ids_of(server, s) != tokenizer.encode(s, add_special_tokens=False).ids]
    print(f"{len(strings)} strings, {len(strings) - len(other)} with the same ids in tokenizers and llama.cpp"
          + (f"; different: {other[0]!r}" if other else ""))
    sys.exit(1 if other else 0)


if __name__ == "__main__":
    main()
