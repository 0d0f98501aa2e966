# SPDX-License-Identifier: Apache-2.0
"""What README.md shows is what there is: its C++ is quoted from a program that is built and run, each of its
`$ qkv ...` lines whose output does not depend on the machine gives that output, the files it names exist, and every
room of src/ is on its map.

    readme_test.py ROOT QKV
"""
import pathlib
import re
import shlex
import subprocess
import sys


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def quoted_program(root, name="attention", mark="README"):
    parts = (root / f"examples/{name}.cc").read_text().split(f"  // [{mark}]\n")
    return "".join(line[2:] if line.startswith("  ") else line for line in parts[1].splitlines(keepends=True))


def console_faults(text, qkv):
    """```console blocks: a command, then exactly its output; a line '...' stands for any lines."""
    for block in blocks(text, "console"):
        command, _, wanted = block.partition("\n")
        if not command.startswith("$ qkv "):
            yield f"a console block that is not a qkv command: {command}"
            continue
        ran = subprocess.run([qkv, *shlex.split(command)[2:]], capture_output=True, text=True, check=False)
        pattern = re.escape(wanted).replace(r"\.\.\." + "\\\n", "(?:.*\n)*")
        if not re.fullmatch(pattern, ran.stdout + ran.stderr):
            yield f"{command}\n--- README\n{wanted}--- found\n{ran.stdout}{ran.stderr}"


def faults(root, qkv):
    text = (root / "README.md").read_text(encoding="utf-8")
    if quoted_program(root) not in blocks(text, "cpp"):
        yield "README.md does not quote examples/attention.cc as it is"
    examples = blocks((root / "docs/examples.md").read_text(encoding="utf-8"), "cpp")
    for name in ("custom_mask", "training_loop", "kv_cache", "engine"):
        if quoted_program(root, name, "quote") not in examples:
            yield f"docs/examples.md does not quote examples/{name}.cc as it is"
    yield from console_faults(text, qkv)
    for name in re.findall(r"\]\(([^)#:]+)\)", text):
        if not (root / name).exists():
            yield f"README.md points to {name}, which is not there"
    for document in ("README.md", "docs/architecture.md"):
        shown = (root / document).read_text(encoding="utf-8")
        for room in sorted(p.parent.name for p in (root / "src").glob("*/CMakeLists.txt")):
            if f"`{room}`" not in shown and f"src/{room}" not in shown:
                yield f"{document}: the map lacks the room {room}"


def main():
    found = list(faults(pathlib.Path(sys.argv[1]), sys.argv[2]))
    print("\n".join(found) if found else "README.md is true")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
