#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/formats/golden/jinja.json: conversations as `transformers` renders them by templates.

    make_jinja_golden.py

For each template of chat_templates.py and each conversation the text, or null where an error is raised. Needs the PyPI
packages transformers and jinja2 (5.24.0 and 3.1.6 were used); the test does not.
"""
import datetime
import json
import pathlib

import transformers.utils.chat_template_utils as utils
from chat_templates import TEMPLATES

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "formats" / "golden" / "jinja.json"
TURNS = ["Hello  you!", "  caf\u00e9 \u4f60\u597d? ", "", "\n x\ny\n", "<think>\nhm\n</think>\n\nYes.", "One 'two' \"three\""]


def conversations():
    for system in (None, "Be brief.", " \u00c9t\u00e9\n"):
        for turns in range(1, 5):
            for shift in (0, 2) if turns < 3 else (turns,):
                talk = [] if system is None else [{"role": "system", "content": system}]
                for i in range(2 * turns - 1):
                    talk.append({"role": "assistant" if i % 2 else "user", "content": TURNS[(i + shift) % len(TURNS)]})
                yield talk


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 5, 14, 7, 9)


def rendered(template, number, talk):
    try:
        return utils.render_jinja_template([talk], chat_template=template, add_generation_prompt=number % 5 != 4,
                                           bos_token="<s>", eos_token="</s>")[0][0]
    except Exception:  # of Jinja, of Python
        return None


def main():
    utils.datetime = Fixed
    talks = list(conversations())
    cases = [{"name": name, "template": template, "texts": [rendered(template, i, talk) for i, talk in enumerate(talks)]}
             for name, template in TEMPLATES.items()]
    GOLDEN.write_text(json.dumps({"conversations": talks, "cases": cases}, separators=(",", ":")) + "\n")
    print(f"{len(cases)} templates, {len(talks)} conversations, "
          f"{sum(text is None for case in cases for text in case['texts'])} errors")


if __name__ == "__main__":
    main()
