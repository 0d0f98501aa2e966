#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the #include lines (and the MODULES of CMakeLists.txt) against the layering of docs/architecture.md: modules
include only modules to their left. Prints one line per fault and exits 1 if there is any.

    check_includes.py [ROOT]        checks a tree (default: that of this script)
    check_includes.py --self-test   checks that forbidden includes are detected
"""
import pathlib
import re
import sys
import tempfile

# The modules that each module may include besides itself. All may use `os`.
LINE = ["core", "kernels", "linalg", "attention", "device", "model"]
ALLOWED = {
    "core": set(),
    "os": {"core"},
    "kernels": {"core"},
    "linalg": {"core", "kernels"},
    "attention": {"core", "kernels", "linalg"},
    "jinja": {"core"},
    "text": {"core", "jinja"},
    "page": {"core"},
    "formats": {"core", "text"},
    "measure": {"core", "kernels", "linalg"},
    "device": {"core", "kernels", "linalg", "attention"},
    "model": {"core", "attention", "device"},
    "generate": set(LINE) | {"text"},
    "inspect": set(LINE) | {"text", "formats", "page", "measure"},
    "train": set(LINE) | {"generate", "text", "formats", "page", "measure"},
    "c_api": set(LINE) | {"generate", "text", "formats", "train"},
}
# The module that implements each public header.
PUBLIC = {
    "tensor": "core", "convert": "core", "error": "core", "threads": "core", "version": "core", "interrupt": "os",
    "kernels": "kernels", "attention": "attention", "attention_members": "attention", "multi_head": "attention", "kv_cache": "attention", "device": "device", "device_facts": "device", "model": "model", "model_config": "model", "model_members": "model", "trace": "model", "model_state": "model", "stored_parameters": "model", "gradient_sum": "model", "lora": "model",
    "tokenizer": "text", "array_file": "formats", "text_file": "formats", "model_file": "formats", "andrea": "formats", "generate": "generate", "sampler": "generate", "engine": "generate", "stop_strings": "text",
    "chat_template": "text", "conversation": "text", "chat_file": "formats", "prompt_cache": "generate",
    "repetition": "text", "display_text": "text", "corpus": "train", "evaluate": "train",
    "dataset": "train", "optimizer": "train", "train": "train", "train_config": "train", "train_run": "train", "trainer": "train", "report": "train", "explain": "inspect", "inspect": "inspect",
    "measure": "measure", "training_memory": "train", "qkv": "all",
}
# Public headers that a module may include although they belong to a module to its right: only types, no calls.
DESCRIPTIONS = {"measure": {"model"}, "device": {"model_config"}}
# Libraries that only one module may use.
OWNERS = {"dnnl": {"linalg"}, "oneapi/dnnl": {"linalg"}, "omp.h": {"core", "linalg"}, "immintrin.h": {"kernels", "linalg"},
          "nlohmann/": {"formats", "text", "cli", "train", "inspect"}, "histedit.h": {"cli"}, "pcre2.h": {"text"}, "utf8proc.h": {"text", "jinja"}}
# Additional libraries in a module's folder, and that module.
SECOND_LIBRARIES = {"model_file": "formats"}
# Allowed in the C header.
C_STANDARD = {"stddef.h", "stdint.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
SOURCES = {".h", ".hpp", ".c", ".cc", ".cpp", ".inc"}


def module_of(path):
    """The module of a file, from its path below the root: src/core/x.cc -> core, cli/x.cc -> cli."""
    return path.parts[1] if path.parts[0] == "src" and len(path.parts) > 2 else path.parts[0]


def fault_of_public(module, header):
    """The reason why a module may not include <qkv/header>, or None."""
    name = pathlib.PurePosixPath(header).stem
    if name not in PUBLIC:
        return "unknown public header: add it to scripts/check_includes.py"
    if module not in ALLOWED or module == "formats":
        return None  # public headers, cli, python, examples; formats may include them all
    owner = PUBLIC[name]
    if owner in ALLOWED[module] | {module, "os"} or name in DESCRIPTIONS.get(module, set()):
        return None
    return f"{module} may not include {owner}"


def fault(path, mark, target):
    """The reason why a file may not include a target, or None."""
    module = module_of(path)
    for library, owners in OWNERS.items():
        if target.startswith(library) and module not in owners:
            return f"only {', '.join(sorted(owners))} may include this library"
    if mark == "<":
        if module == "include" and re.search(r"[./]", target) and not (path.name == "qkv_c.h" and target in C_STANDARD):
            return "public headers include only public headers and the standard library"
        return None
    if target == "qkv_c.h":
        return None if module in ("c_api", "cli", "python", "examples") else "only code outside the library may include the C interface"
    if target.startswith("qkv/"):
        return fault_of_public(module, target)
    first = pathlib.PurePosixPath(target).parts[0]
    if first == "..":
        return "include paths must be relative to src/ or include/"
    if module in ("include", "cli", "python", "examples"):
        beside = "/" not in target and module in ("cli", "python")
        return None if beside else f"{module} may include only <qkv/...>"
    if "/" not in target:
        return None  # in the same folder
    if first == "tests":
        return "product code never includes tests"
    if first not in ALLOWED:
        return f"unknown module {first}"
    if first not in ALLOWED[module] | {module, "os"}:
        return f"{module} may not include {first}"
    return None


def faults_of_file(root, path):
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    for match in INCLUDE.finditer(text):
        reason = fault(path, *match.groups())
        if reason:
            line = text.count("\n", 0, match.start(1)) + 1
            yield f"{path}:{line}: {match.group(2)}: {reason}"


def faults_of_links(root, path):
    """A module may link only modules that it may include."""
    module = path.parts[1]
    text = re.sub(r"#.*", "", (root / path).read_text(encoding="utf-8"))
    for listed in re.findall(r"\bMODULES\s+([\w\s]+)", text):
        for other in listed.split():
            if other.isupper():
                break
            other = SECOND_LIBRARIES.get(other, other)
            if other not in ALLOWED[module] | {module, "os"}:
                yield f"{path}: MODULES {other}: {module} may not link {other}"


def faults(root):
    found = []
    for folder in sorted(p.name for p in (root / "src").glob("*") if p.is_dir()):
        if folder not in ALLOWED:
            found.append(f"src/{folder}: unknown module; add it to scripts/check_includes.py")
    for top in ("include", "src", "cli", "python", "examples"):
        for file in sorted((root / top).rglob("*")):
            path = file.relative_to(root)
            if file.suffix in SOURCES and (top != "src" or module_of(path) in ALLOWED):
                found.extend(faults_of_file(root, path))
            elif file.name == "CMakeLists.txt" and len(path.parts) == 3 and module_of(path) in ALLOWED:
                found.extend(faults_of_links(root, path))
    return found


def self_test():
    bad = {
        "src/core/a.cc": '#include "kernels/k.h"',
        "src/kernels/a.cc": '#include "attention/mask.h"',
        "src/linalg/a.cc": '#include "attention/mask.h"',
        "src/model/a.cc": '  #  include   "qkv/generate.h"',
        "src/model/b.cc": '#include "formats/gguf.h"',
        "src/model/e.cc": '#include "kernels/row_kernels.h"',
        "src/device/a.cc": '#include "model/layer.h"',
        "src/text/a.cc": '#include "qkv/model.h"',
        "src/attention/a.cc": "#include <dnnl.hpp>",
        "src/model/c.cc": "#include <omp.h>",
        "src/generate/a.cc": '#include "train/x.h"',
        "src/inspect/a.cc": '#include "generate/x.h"',
        "src/train/a.cc": '#include "tests/x.h"',
        "src/train/b.cc": '#include "../core/x.h"',
        "src/utils/a.cc": "",
        "src/formats/CMakeLists.txt": "qkv_module(formats SOURCES a.cc MODULES core model)",
        "cli/a.cc": '#include "core/random.h"',
        "python/a.cc": '#include "model/layers.h"',
        "examples/a.cc": '#include "core/random.h"',
        "include/qkv/a.h": '#include "core/random.h"',
        "include/qkv/b.h": "#include <immintrin.h>",
        "include/qkv/c.h": "#include <nlohmann/json.hpp>",
        "include/qkv/d.h": "#include <dnnl.hpp>",
        "cli/b.cc": '#include "qkv/unheard_of.h"',
        "src/model/d.cc": '#include "qkv_c.h"',
        "src/c_api/a.cc": '#include "inspect/x.h"',
        "examples/b.c": '#include "core/random.h"',
        "include/qkv_c.h": "#include <unistd.h>",
    }
    good = {
        "src/core/b.cc": '#include "core/parallel.h"\n#include "qkv/tensor.h"\n#include "os/machine.h"\n#include <vector>',
        "src/attention/b.cc": '#include "kernels/k.h"\n#include "linalg/gemm.h"\n#include "mask.h"\n#include "qkv/kv_cache.h"',
        "src/formats/b.cc": '#include "text/bpe.h"\n#include "qkv/model.h"\n#include <nlohmann/json.hpp>',
        "src/measure/b.cc": '#include "qkv/model.h"\n#include "kernels/k.h"',
        "src/linalg/b.cc": "#include <dnnl.hpp>",
        "src/train/c.cc": '#include "generate/x.h"\n#include "qkv/tokenizer.h"\n#include "page/svg.h"',
        "src/linalg/CMakeLists.txt": "qkv_module(linalg SOURCES a.cc MODULES core LIBRARIES dnnl)",
        "include/qkv/e.h": '#include "qkv/tensor.h"\n#include <string_view>',
        "cli/c.cc": '#include <CLI/CLI.hpp>\n#include "cli.h"\n#include "qkv/train.h"',
        "src/c_api/b.cc": '#include "qkv_c.h"\n#include "qkv/train.h"',
        "tests/core/a.cc": '#include "core/random.h"',
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in {**bad, **good}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text + "\n", encoding="utf-8")
        caught = faults(root)
    missed = [p for p in bad if not any(c.startswith((p + ":", str(pathlib.PurePosixPath(p).parent) + ":")) for c in caught)]
    wrong = [c for c in caught if c.split(":")[0] in good]
    for path in missed:
        print(f"self-test: not detected: {path}: {bad[path]}")
    for line in wrong:
        print(f"self-test: wrongly rejected: {line}")
    return missed + wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        found = self_test()
    else:
        root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
        found = faults(root)
        print("\n".join(found) if found else "all includes respect the layering")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
