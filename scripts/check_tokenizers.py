#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares qkv's tokenizers with Hugging Face's `tokenizers`, id by id, on random valid strings from all Unicode
planes.

    check_tokenizers.py PROGRAM [COUNT]

PROGRAM is tokenizer_ids (a target of tests/formats): it reads a tokenizer.json and strings, and writes ids. This script
trains tokenizers with the splits of GPT-2, SmolLM and LLaMA 3, and character-level models with byte_fallback (LLaMA 2,
Mistral), with added tokens of every kind, and tests each with COUNT strings (default 100,000). Needs the Python package
tokenizers; the tests do not. Exits 1 at the first difference.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
SPACES = [chr(c) for c in [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
                           0x3000, 0x180E, 0x200B, 0xFEFF, 0x1C, 0x1F]]
JOINERS = ["\u200d", "\ufe0f", "\u200c", "\u0301", "\u20e3", "\U0001f3fd"]
EMOJI = ["\U0001f468", "\U0001f469", "\U0001f466", "\u2764", "\U0001f1e9", "\U0001f1ea", "1", "#", "\U0001f600"]
WORDS = ["'s", "'S", "'\u017f", "'ll", "'LL", "'re", "the", "The", " word", "don't", "12345", "\u0663\u0664", "\u2168", "\u00bd",
         "_", "...", "\r\n", "\n\n ", "<|endoftext|>", "<b>", "<bb>", "cat", "norm", " x", "<l>", "<r>", "<|s|>"]


def letters():
    """Every character assigned in Unicode 14 (that of PCRE2). unicodedata may be newer and its 3.2 table is too old, so
    blocks added later are excluded by the version of the interpreter's tables."""
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        if unicodedata.category(chr(code)) not in ("Cn",):
            yield chr(code)


def corpus():
    text = pathlib.Path(__file__).read_text()
    return [text, "the cat sat on the mat, and the cat's hat was 12 345 inches wide. don't \u00e9t\u00e9 \u0434\u043e\u043c \u4e2d\u6587 " * 20]


def make(name):
    unk = "<unk>" if name == "unknown" else None
    tokenizer = Tokenizer(models.BPE(unk_token=unk, fuse_unk=name == "unknown", ignore_merges=name == "llama3"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=name == "prefix", use_regex=name != "llama3")
    if name == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    elif name == "llama3":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), byte_level])
    else:
        tokenizer.pre_tokenizer = byte_level
    if name == "nfc":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, show_progress=False, special_tokens=[unk] if unk else [],
                                  initial_alphabet=alphabet[5:] if name == "unknown" else alphabet)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", AddedToken("<|s|>", rstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("<b>", normalized=False), AddedToken("<bb>", normalized=True),
                          AddedToken("cat", single_word=True, normalized=False), AddedToken("norm", single_word=True),
                          AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<r>", rstrip=True)])
    if name == "llama3":
        end = tokenizer.token_to_id("<|endoftext|>")
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|endoftext|> $A", pair="<|endoftext|> $A <|endoftext|> $B",
                                          special_tokens=[("<|endoftext|>", end)])])
    return tokenizer


def make_of_characters(name):
    """The tokenizer.json form of sentencepiece's BPE models: LLaMA 2 and TinyLlama ("prepend"), Mistral ("first")."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    replace = normalizers.Replace(" ", "\u2581")
    stages = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    if name in ("prepend", "bare"):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), replace]) if name == "prepend" else replace
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first" if name == "first" else "always",
                                                           split=name == "split")
    tokenizer.decoder = decoders.Sequence(stages + ([decoders.Strip(" ", 1, 0)] if name != "bare" else []))
    specials = ["<unk>", "<s>", "</s>"]
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=700, show_progress=False, special_tokens=specials))
    file = json.loads(tokenizer.to_str())
    for byte in range(256):
        file["model"]["vocab"][f"<0x{byte:02X}>"] = len(file["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.add_tokens([AddedToken("<b>", normalized=False), AddedToken("cat", single_word=True, normalized=False),
                          AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<r>", rstrip=True, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                             special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer


def strings(count, seed):
    draw = random.Random(seed)
    everything = list(letters())
    pools = [SPACES, JOINERS, EMOJI, WORDS, everything, [chr(c) for c in range(32, 127)]]
    for _ in range(count):
        parts = []
        for _ in range(draw.randrange(1, 8)):
            pool = draw.choice(pools)
            parts += [draw.choice(pool)] * draw.choice([1, 1, 1, 2, 3]) if draw.random() < 0.3 else \
                [draw.choice(pool) for _ in range(draw.randrange(1, 5))]
        yield "".join(parts)


def ask(program, path, mode, texts):
    """mode: ids, text or template."""
    data = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    out = subprocess.run([program, str(path), mode], input=data, stdout=subprocess.PIPE, check=True).stdout
    at, result = 0, []
    for _ in texts:
        (size,) = struct.unpack_from("<I", out, at)
        result.append(list(struct.unpack_from(f"<{size}i", out, at + 4)))
        at += 4 + 4 * size
    return result


def compare(program, name, path, mode, tokenizer, texts):
    tokenizer.encode_special_tokens = mode == "text"
    wanted = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=mode == "template")]
    found = ask(program, path, mode, [t.encode() for t in texts])
    bad = [i for i in range(len(texts)) if wanted[i] != found[i]]
    print(f"{name:8} {mode:9} {len(texts)} strings, {sum(map(len, wanted))} ids, {len(bad)} differ", flush=True)
    for i in bad[:5]:
        print("  ", ascii(texts[i]), "\n   wanted", wanted[i], "\n   found ", found[i])
    return not bad


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for n, name in enumerate(["gpt2", "smollm", "llama3", "prefix", "nfc", "unknown", "prepend", "first", "always", "split",
                                  "bare"]):
            tokenizer = make(name) if n < 6 else make_of_characters(name)
            path = pathlib.Path(folder) / (name + ".json")
            tokenizer.save(str(path))
            texts = list(strings(count if n < 3 else count // 5, n))
            good &= compare(program, name, path, "ids", tokenizer, texts)
            good &= compare(program, name, path, "text", tokenizer, texts[: len(texts) // 5])
            good &= compare(program, name, path, "template", tokenizer, texts[: len(texts) // 20])
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
