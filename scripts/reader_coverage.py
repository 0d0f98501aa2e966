#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the lines of a file reader that a run covered (clang source-based coverage); called by
scripts/fuzz_readers.sh.

    reader_coverage.py [--missed] PROGRAM PROFDATA FILE...

Functions that write or return file names (below) are not counted, nor are lines between functions. --missed prints the
lines that were not covered.
"""
import json
import re
import subprocess
import sys

OTHERS = re.compile(r"write|save|config_text|run_state_text|TokenFileWriter|to_bytes|publish_checkpoint|remove_old_checkpoints"
                     r"|gguf_our_row|misfit|hf_family_of|one_or_list|gpt2_json|llama_json|::config_json|scaling_json"
                     r"|from_tokens|::tokenize$|from_text$|train_bpe|step_of|base_path|base_name|checkpoint_path|checkpoint_steps|facts_of_file"
                    r"|Writer|json_string|header_of|chat_form_name|chat_form_from_name|make_lora|check_targets|target_modules|::draw|::refuse|listed"
                    r"|gguf_family_of|character_normalizer|character_pre_tokenizer|character_decoder|with_space_marks"
                    r"|segments_of")


def exported(program, profile, *more):
    return subprocess.run(["llvm-cov-14", "export", program, f"-instr-profile={profile}", *more], check=True,
                          stdout=subprocess.PIPE).stdout.decode()


def demangled(names):
    out = subprocess.run(["c++filt", "-p"], input="\n".join(names), check=True, stdout=subprocess.PIPE, text=True).stdout
    return out.splitlines()


def main():
    arguments = [a for a in sys.argv[1:] if a != "--missed"]
    program, profile, *files = arguments
    counted = exported(program, profile, "-format=lcov").splitlines()
    all_functions = json.loads(exported(program, profile))["data"][0]["functions"]
    for path in files:
        counts, here = {}, False  # line: executions
        for line in counted:
            if line.startswith("SF:"):
                here = line.endswith("/" + path)
            elif here and line.startswith("DA:"):
                number, count = line[3:].split(",")[:2]
                counts[int(number)] = int(count)
        functions = [f for f in all_functions if f["filenames"][0].endswith("/" + path)]
        kept = {}  # lines of readers; a nested function or lambda belongs to the inner one
        for function, name in sorted(zip(functions, demangled([f["name"].split(":")[-1] for f in functions])),
                                     key=lambda pair: pair[0]["regions"][0][0] - pair[0]["regions"][0][2]):
            first, _, last = function["regions"][0][:3]
            for number in range(first, last + 1):
                kept[number] = kept.get(number, True) and not OTHERS.search(name)
        lines = [n for n, count in counts.items() if kept.get(n)]
        reached = [n for n in lines if counts[n] > 0]
        print(f"{path.split('/')[-1]} {100 * len(reached) / max(len(lines), 1):.1f} % of {len(lines)}")
        if "--missed" in sys.argv:
            text = open(path, encoding="utf-8").read().splitlines()
            for number in sorted(set(lines) - set(reached)):
                print(f"  {number:4} {text[number - 1]}")


if __name__ == "__main__":
    main()
