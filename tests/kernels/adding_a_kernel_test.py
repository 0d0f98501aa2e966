# SPDX-License-Identifier: Apache-2.0
"""docs/adding_a_kernel.md is correct.

    adding_a_kernel_test.py ROOT lists      its list of row kernels and their arguments matches the header
    adding_a_kernel_test.py ROOT compile    its code compiles for arm64 (exit status 77: no arm64 compiler)
"""
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

# Each ```cpp block, with the source file named just before it; the block of declarations names headers only.
BLOCK = re.compile(r"((?:[^\n]+\n)*[^\n]*\n)\n?^ *```cpp\n(.*?)^ *```$", re.M | re.S)
FLAGS = ["-std=c++20", "-O1", "-fopenmp-simd", "-ffp-contract=off", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]


def code_blocks(text):
    declarations, files = [], {}
    for before, code in BLOCK.findall(text):
        name = re.findall(r"`src/(kernels/neon\w*\.cc|kernels/vec_neon\.h)`", before)
        if name:
            files[name[-1]] = code
        else:
            declarations.append(re.sub(r"^   ", "", code, flags=re.M))
    return declarations, files


def compile_faults(root, text, compiler):
    declarations, files = code_blocks(text)
    if len(declarations) != 1 or sorted(files) != [
        "kernels/neon.cc", "kernels/neon_decode.cc", "kernels/neon_rows.cc", "kernels/vec_neon.h"]:
        yield f"expected a block of declarations and 4 files; found {len(declarations)} and {sorted(files)}"
        return
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        (work / "kernels").mkdir()
        for name, code in files.items():
            (work / name).write_text(code)
        headers = "".join(f'#include "kernels/{h}.h"\n' for h in ("kernels", "row_kernels", "decode_kernels"))
        (work / "declared.h").write_text(f"{headers}namespace qkv {{\n{declarations[0]}}}\n")
        for source in sorted(name for name in files if name.endswith(".cc")):
            command = [compiler, *FLAGS, f"-I{work}", f"-I{root / 'src'}", f"-I{root / 'include'}", "-include",
                       str(work / "declared.h"), "-c", str(work / source), "-o", str(work / "object.o")]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode != 0:
                yield f"{source} does not compile:\n{ran.stderr[:4000]}"


def arguments(parameters):
    return [re.findall(r"\w+", p)[-1] for p in parameters.split(",")]


def list_faults(root, text):
    header = re.sub(r"//[^\n]*", "", (root / "src/kernels/row_kernels.h").read_text())
    declared = {name: arguments(p) for name, p in re.findall(r"\(\*(\w+)\)\(([^)]*)\)", header)}
    listed = {name: arguments(p) for name, p in re.findall(r"`(\w+)\(([^)`]+)\)`", text[text.index("## Row kernels"):])}
    for name in sorted(declared.keys() | listed.keys()):
        if declared.get(name) != listed.get(name):
            yield f"{name}: the header has {declared.get(name)}, the page has {listed.get(name)}"


def main():
    root = pathlib.Path(sys.argv[1])
    text = (root / "docs/adding_a_kernel.md").read_text(encoding="utf-8")
    if sys.argv[2] == "lists":
        found = list(list_faults(root, text))
    else:
        native = platform.machine() in ("aarch64", "arm64")
        compiler = os.environ.get("CXX", "c++") if native else shutil.which("aarch64-linux-gnu-g++")
        if not compiler:
            print("skipped: no aarch64-linux-gnu-g++ (Debian package g++-aarch64-linux-gnu)")
            sys.exit(77)
        found = list(compile_faults(root, text, compiler))
    print("\n".join(found) if found else "docs/adding_a_kernel.md is correct")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
