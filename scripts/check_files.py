#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every file of the repository: licence line, length, names of folders, wording. Prints one line per fault and exits 1
if there is one. --self-test shows that each fault is caught."""
import pathlib
import re
import subprocess
import sys
import tempfile

CODE = {".h", ".cc", ".py", ".sh", ".cmake"}
MOST_LINES = 600
NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "helpers", "misc"}
WORDED = CODE | {".md", ".js", ".html", ".css", ".txt", ".yml"}
# Translated or private English that is easy to find; CONTRIBUTING.md asks for plain English.
WORDING = [
    (r"\b(tokens|bytes|operations|steps|GB|nats|rows|cycles|numbers|one) an? (second|minute|token|step|core|thread|head|row|tile"
     r"|sequence|query|cycle|byte)\b", "'per', as in 'tokens per second'"),
    (r"\b(anew|likewise|learnt|whoever|dearest)\b", "'again', 'also', 'trained' or a plain clause"),
    (r"(?<![+.\d] )(?<![.\d])\b1 (files|tokens|threads|steps|heads|rows)\b", "the singular"),
    (r"\b(the house|of one's own|rooms)\b", "'modules', 'custom'"),
]
LICENCE = "SPDX-License-Identifier: Apache-2.0"


def listed(root):
    """Paths that git knows or would add; without git, all."""
    try:
        out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                             capture_output=True, check=True).stdout
        paths = [pathlib.Path(p) for p in out.decode().split("\0") if p]
    except (OSError, subprocess.CalledProcessError):
        paths = [p.relative_to(root) for p in root.rglob("*")]
        paths = [p for p in paths if p.parts[0] not in ("build", ".git")]
    return sorted(p for p in paths if (root / p).is_file())


def faults(root):
    for path in listed(root):
        for part in path.parts[:-1] + (path.stem,):
            if part.lower() in NAMES_THAT_SAY_NOTHING:
                yield f"{path}: '{part}' says nothing about what lives there"
        if path.suffix in WORDED and "golden" not in path.parts and path.name != "check_files.py":
            for number, line in enumerate((root / path).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                for pattern, better in WORDING:
                    found = re.search(pattern, line)
                    if found:
                        yield f"{path}:{number}: '{found.group()}': write {better}"
        if path.suffix not in CODE and path.name != "CMakeLists.txt":
            continue
        lines = (root / path).read_text(encoding="utf-8", errors="replace").splitlines()
        if not any(LICENCE in line for line in lines[:2]):
            yield f"{path}: the first lines lack '{LICENCE}'"
        if len(lines) > MOST_LINES:
            yield f"{path}: {len(lines)} lines; split past {MOST_LINES}"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        line = f"// {LICENCE}\n"
        files = {"src/a.cc": line, "src/b.cc": "int x;\n", "src/c.h": line + "\n" * MOST_LINES, "src/utils/d.txt": "",
                 "docs/e.md": "10 tokens a second\n", "docs/f.md": "10 tokens per second, ctx + 1 tokens\n"}
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        caught = sorted({fault.split(":")[0] for fault in faults(root)})
    return caught == ["docs/e.md", "src/b.cc", "src/c.h", "src/utils/d.txt"]


def main():
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(0 if self_test() else "self-test: a fault was missed or a good file refused")
    found = list(faults(pathlib.Path(__file__).resolve().parent.parent))
    print("\n".join(found) if found else "every file has its licence line, a fair length, a name and plain words")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
