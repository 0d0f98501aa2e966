#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/formats/golden/chat_forms.json: conversations as rendered and tokenized by `transformers`.

    make_chat_golden.py

For each chat template that qkv supports there is a short template with the strings of the original ones, and for
several kinds of tokenizers ([INST] as letters and as a token) the ids of a first question and of a second one after an
answer. Needs the PyPI packages tokenizers and transformers (0.23.3 and 5.24.0 were used); the tests do not.
"""
import json
import pathlib

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "formats" / "golden"
QUESTIONS, ANSWER, SYSTEM = (" Hi  there ", "And \u00e9? [x]"), "Hello  you!", "Be brief."


def template(question, answer, before="{{ bos_token }}", system=""):
    """One branch per role."""
    return (before + "{% for message in messages %}{% if message['role'] == 'user' %}{{ " + question + " }}"
            "{% elif message['role'] == 'assistant' %}{{ " + answer + " }}{% else %}{{ " + (system or "''") + " }}"
            "{% endif %}{% endfor %}")


def named(role):
    return f"'<|{role}|>\n' + message['content'] + eos_token + '\n'"


CONTENT, PLAIN = "message['content']", "message['content'] + eos_token"
V1 = '" [INST] " + (system_message + "\\n\\n" if loop.first and system_message else "") + message["content"] + " [/INST]"'
LLAMA3 = "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>'"
CHATML = "'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'"
# Name: template, whether it supports a system message, whether a second question continues the first.
FORMS = {
    "chatml": (template(CHATML, CHATML, "", CHATML) + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
               True, True),
    "llama3": (template(LLAMA3, LLAMA3, system=LLAMA3) +
               "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}", True, True),
    "llama2": ("{% set s = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}" +
               template("bos_token + '[INST] ' + ('<<SYS>>\n' + s + '\n<</SYS>>\n\n' if loop.index0 < 2 and s else '') + "
                        "message['content'] | trim + ' [/INST]'", "' ' + message['content'] | trim + ' ' + eos_token", ""),
               True, False),
    "zephyr": (template(named("user"), named("assistant"), "", named("system")) +
               "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}", True, True),
    "mistral-v0.1": (template(f"'[INST] ' + {CONTENT} + ' [/INST]'", PLAIN + " + ' '"), False, True),
    "mistral-v0.2": (template(f"'[INST] ' + {CONTENT} + ' [/INST]'", PLAIN), False, True),
    "mistral-v1": ("{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}"
                   "{%- set messages = messages[1:] %}{%- endif %}" + template(V1, '" " + message["content"] + eos_token'),
                   True, True),
    "mistral-v3": (template('"[INST] " + message["content"] + "[/INST]"', '" " + message["content"]|trim + eos_token'),
                   False, True),
    "mistral-tekken": (template('"[INST]" + message["content"] + "[/INST]"', 'message["content"] + eos_token'), False, True),
}
TOKENS = {"chatml": ["<|im_start|>", "<|im_end|>"],
          "llama3": ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]}


def tokenizer_of(kind, added):
    """Only single bytes, so that the text determines every id."""
    if kind == "bytes":
        tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    else:
        vocabulary = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "H", "i"]
        tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, [], unk_token="<unk>",
                                         fuse_unk=True, byte_fallback=True))
        if kind == "metaspace":
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        else:
            tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                               decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in added])
    return tokenizer


def main():
    tokenizers, cases = {}, []
    for form, (jinja, with_system, goes_on) in FORMS.items():
        for kind in ("bytes", "metaspace", "prepend"):
            for marks in (False, True) if form.startswith("mistral") else (False,):
                added = TOKENS.get(form, ["<s>", "</s>"]) + (["[INST]", "[/INST]"] if marks else [])
                name = f"{kind} {' '.join(added)}"
                tokenizer = tokenizer_of(kind, added)
                tokenizers[name] = json.loads(tokenizer.to_str())
                fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=added[0], eos_token=added[1],
                                               chat_template=jinja)
                for system in ("", SYSTEM) if with_system else ("",):
                    talk = [{"role": "system", "content": system}] if system else []
                    case = {"form": form, "tokenizer": name, "template": jinja, "system": system, "ids": []}
                    for question in QUESTIONS[: 2 if goes_on else 1]:
                        talk.append({"role": "user", "content": question})
                        case["ids"].append(fast.apply_chat_template(talk, add_generation_prompt=True, return_dict=False))
                        case["text"] = fast.apply_chat_template(talk, add_generation_prompt=True, tokenize=False)
                        talk.append({"role": "assistant", "content": ANSWER})
                    cases.append(case)
    golden = {"questions": QUESTIONS, "answer": ANSWER, "tokenizers": tokenizers, "cases": cases}
    (GOLDEN / "chat_forms.json").write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{len(cases)} conversations, {len(tokenizers)} tokenizers")


if __name__ == "__main__":
    main()
