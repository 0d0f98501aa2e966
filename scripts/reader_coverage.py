#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many lines of a file's reader a run has reached, by clang's source-based coverage; scripts/fuzz_readers.sh calls it.

    reader_coverage.py [--missed] PROGRAM PROFDATA FILE...

Functions that write (by their names, below) are not counted, nor is what lies
between functions. --missed prints the lines that were not reached.
"""
import json
import re
import subprocess
import sys

WRITERS = re.compile(r"write|save|config_text|run_state_text|TokenFileWriter|to_bytes|publish_checkpoint|remove_old_checkpoints"
                     r"|gguf_our_row|misfit|hf_family_of|one_or_list|gpt2_json|llama_json|::config_json|scaling_json"
                     r"|from_tokens|::tokenize$|from_text$|learn_bpe")


def exported(program, profile, *more):
    return subprocess.run(["llvm-cov-14", "export", program, f"-instr-profile={profile}", *more], check=True,
                          stdout=subprocess.PIPE).stdout.decode()


def demangled(names):
    out = subprocess.run(["c++filt", "-p"], input="\n".join(names), check=True, stdout=subprocess.PIPE, text=True).stdout
    return out.splitlines()


def main():
    arguments = [a for a in sys.argv[1:] if a != "--missed"]
    program, profile, *files = arguments
    for path in files:
        counts = {}  # by line
        for line in exported(program, profile, "-format=lcov", path).splitlines():
            if line.startswith("DA:"):
                number, count = line[3:].split(",")[:2]
                counts[int(number)] = int(count)
        functions = json.loads(exported(program, profile, path))["data"][0]["functions"]
        functions = [f for f in functions if f["filenames"][0].endswith(path)]
        kept = {}  # lines of readers; a function inside another, a lambda, is of the inner kind
        for function, name in sorted(zip(functions, demangled([f["name"].split(":")[-1] for f in functions])),
                                     key=lambda pair: pair[0]["regions"][0][0] - pair[0]["regions"][0][2]):
            first, _, last = function["regions"][0][:3]
            for number in range(first, last + 1):
                kept[number] = kept.get(number, True) and not WRITERS.search(name)
        lines = [n for n, count in counts.items() if kept.get(n)]
        reached = [n for n in lines if counts[n] > 0]
        print(f"{path.split('/')[-1]} {100 * len(reached) / max(len(lines), 1):.1f} % of {len(lines)}")
        if "--missed" in sys.argv:
            text = open(path, encoding="utf-8").read().splitlines()
            for number in sorted(set(lines) - set(reached)):
                print(f"  {number:4} {text[number - 1]}")


if __name__ == "__main__":
    main()
