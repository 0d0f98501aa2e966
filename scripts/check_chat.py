#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks with other programs that `qkv convert` preserves a model's chat template, end tokens and its bos, unknown and
padding tokens.

    check_chat.py QKV FILE.gguf

The file, which must have a template, is converted to a Hugging Face directory, where this script adds another end
token, to a qkv directory, to GGUF and to a Hugging Face directory again. There `transformers` must render a
conversation like the file's own template, and its tokenizer must give the same ids and the same named tokens; the
package `gguf` must find the same template and ids in the written file. Needs torch, transformers and gguf.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
from tokenizers import Tokenizer
from transformers import AutoTokenizer, GenerationConfig

TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What's 1 + 1?"},
        {"role": "assistant", "content": "2"}, {"role": "user", "content": "caf\u00e9?\n"}]

NAMES = {"bos": "bos_token_id", "unknown": "unk_token_id", "padding": "pad_token_id"}  # gguf name: transformers name


def told(path):
    """Template, end tokens and named tokens of a GGUF file."""
    fields = gguf.GGUFReader(path).fields
    ids = {name: int(fields[key].contents()) for name in ("eos", "eot", "eom", *NAMES)
           if (key := f"tokenizer.ggml.{name}_token_id") in fields}
    ends = [ids[name] for name in ("eos", "eot", "eom") if name in ids]
    return fields["tokenizer.chat_template"].contents(), ends, {theirs: ids.get(name) for name, theirs in NAMES.items()}


def main():
    qkv, source = sys.argv[1:]
    template, ends, names = told(source)
    with tempfile.TemporaryDirectory() as folder:
        path = {name: f"{folder}/{name}" for name in ("first", "own", "back.gguf", "hf")}
        for step in ((source, path["first"], "--to", "hf", "--type", "bf16"), (path["first"], path["own"]),
                     (path["own"], path["back.gguf"], "--type", "q8_0"),
                     (path["back.gguf"], path["hf"], "--to", "hf", "--type", "bf16")):
            subprocess.run([qkv, "convert", *step], check=True, stdout=subprocess.DEVNULL)
            if step[0] == source:
                ends.append(next(i for i in range(3) if i not in ends))
                pathlib.Path(path["first"], "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        tokenizer = AutoTokenizer.from_pretrained(path["hf"])
        text = tokenizer.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
        wanted = tokenizer.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True, chat_template=template)
        ids = tokenizer.apply_chat_template(TALK, add_generation_prompt=True, return_dict=False)
        plain = Tokenizer.from_file(f"{path['hf']}/tokenizer.json").encode(text, add_special_tokens=False).ids
        found = GenerationConfig.from_pretrained(path["hf"]).eos_token_id
        found = found if isinstance(found, list) else [found]
        called = {name: getattr(tokenizer, name) for name in NAMES.values()}
        settings = json.loads(pathlib.Path(path["hf"], "generation_config.json").read_text())
        checks = {"transformers has the template": tokenizer.chat_template == template,
                  f"it renders the same conversation ({len(text)} characters)": text == wanted,
                  f"and encodes it as the same {len(ids)} ids": ids == plain,
                  f"its end tokens are {ends}": found == ends,
                  f"the end token {tokenizer.eos_token} is the first of them": tokenizer.eos_token_id == ends[0],
                  "qkv's directory has the template": pathlib.Path(path["own"], "chat_template.jinja").read_text() == template,
                  f"tokens have the names {names}": called == names,
                  "generation_config.json has the same": all(settings.get(name) == id for name, id in names.items()),
                  "the written GGUF file has all of them": told(path["back.gguf"]) == (template, ends, names)}
    for what, good in checks.items():
        print(f"{'yes' if good else 'NO '}  {what}")
    sys.exit(0 if all(checks.values()) else 1)


if __name__ == "__main__":
    main()
