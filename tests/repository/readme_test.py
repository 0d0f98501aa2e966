# SPDX-License-Identifier: Apache-2.0
"""The documentation is correct: its C++ is quoted from programs that are built and run; commands whose output does not
depend on the machine (console blocks of README.md and docs/command_line.md) print that output; every link to a file
is valid; every page is in the table of contents; and every module of src/ is in the repository layout.

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


def console_faults(document, text, qkv):
    """```console blocks: a command, then exactly its output; a line '...' matches any lines."""
    for block in blocks(text, "console"):
        command, _, wanted = block.partition("\n")
        if not command.startswith("$ qkv "):
            yield f"a console block that is not a qkv command: {command}"
            continue
        ran = subprocess.run([qkv, *shlex.split(command)[2:]], capture_output=True, text=True, check=False)
        pattern = re.escape(wanted).replace(r"\.\.\." + "\\\n", "(?:.*\n)*")
        if not re.fullmatch(pattern, ran.stdout + ran.stderr):
            yield f"{command}\n--- {document}\n{wanted}--- found\n{ran.stdout}{ran.stderr}"


def faults(root, qkv):
    text = (root / "README.md").read_text(encoding="utf-8")
    if quoted_program(root) not in blocks(text, "cpp"):
        yield "README.md does not quote examples/attention.cc as it is"
    examples = blocks((root / "docs/examples.md").read_text(encoding="utf-8"), "cpp")
    for name in ("custom_mask", "training_loop", "kv_cache", "engine"):
        if quoted_program(root, name, "quote") not in examples:
            yield f"docs/examples.md does not quote examples/{name}.cc as it is"
    for document in ("README.md", "docs/command_line.md"):
        yield from console_faults(document, (root / document).read_text(encoding="utf-8"), qkv)
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    for page in pages:
        for name in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not (page.parent / name).exists():
                yield f"{page.relative_to(root)} points to {name}, which does not exist"
    contents = (root / "docs/README.md").read_text(encoding="utf-8")
    for page in pages[1:]:
        if f"({page.name})" not in contents and page.name != "README.md":
            yield f"docs/README.md does not list {page.name}"
    for document in ("README.md", "docs/architecture.md"):
        shown = (root / document).read_text(encoding="utf-8")
        for module in sorted(p.parent.name for p in (root / "src").glob("*/CMakeLists.txt")):
            if f"`{module}`" not in shown and f"src/{module}" not in shown:
                yield f"{document}: the layout lacks the module {module}"


def main():
    found = list(faults(pathlib.Path(sys.argv[1]), sys.argv[2]))
    print("\n".join(found) if found else "the documentation is correct")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
