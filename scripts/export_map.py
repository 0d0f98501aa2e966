#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the linker version script of libqkv.so: exports only what the public headers declare.

    export_map.py --nm NM --version QKV_0.2 --out qkv.map libqkv.a include/qkv/*.h include/qkv_c.h

Names of classes and functions come from the headers, their symbols from the archive. A function that is declared in a
header but not defined is an error. --self-test checks the header parser.
"""
import argparse
import pathlib
import re
import subprocess
import sys

NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*|"(?:\\.|[^"\\\n])*"', re.M | re.S)
CLASS = re.compile(r"^(?:template\s*<.*?>\s*)?(?:class|struct|enum\s+class|enum)\s+(?:\[\[.*?\]\]\s*)?(\w+)")
FUNCTION = re.compile(r"(operator\s*[^\s\w(]+|\w+)\s*\(")
SYMBOL_KINDS = re.compile(r"^(?:typeinfo name for|typeinfo for|vtable for|VTT for) ")


def heads(text):
    """Each declaration directly inside `namespace qkv`: the text before its ';' or '{', and that character."""
    depth, parentheses, head = 0, 0, ""
    for character in text[text.index("namespace qkv {") + len("namespace qkv {"):] if "namespace qkv {" in text else "":
        if depth == 0:
            parentheses += {"(": 1, ")": -1}.get(character, 0)
        if parentheses > 0:  # default arguments may contain braces
            head += character
        elif character == "{":
            if depth == 0:
                yield head.strip(), "{"
                head = ""
            depth += 1
        elif character == "}":
            depth -= 1
            if depth < 0:
                return
        elif depth == 0 and character == ";":
            if head.strip():
                yield head.strip(), ";"
            head = ""
        elif depth == 0:
            head += character


def declared(text):
    """The classes, the functions, and the functions that are only declared."""
    classes, functions, bodiless = set(), set(), set()
    for head, end in heads(NOT_CODE.sub("", text)):
        found = CLASS.match(head)
        if found:
            classes.add(found[1])
        elif not head.startswith(("using", "inline constexpr")) and FUNCTION.search(head):
            name = re.sub(r"\s", "", FUNCTION.search(head)[1])
            functions.add(name)
            if end == ";" and not head.startswith("template"):
                bodiless.add(name)
    return classes, functions, bodiless


def owner(demangled, classes, functions):
    """The declaration of a symbol, or None."""
    name = SYMBOL_KINDS.sub("", demangled)
    if not name.startswith("qkv::"):
        return None
    name = name[len("qkv::"):]
    for function in functions:
        if name.startswith(function) and name[len(function):][:1] in ("(", "["):
            return function
    first = re.match(r"\w+", name)
    if first and first[0] in classes and not re.match(r"\w+::(Impl|State)\b", name) and name[len(first[0]):][:2] in ("", "::"):
        return first[0]
    return None


def symbols(nm, archive):
    def run(*flags):
        out = subprocess.run([nm, "--defined-only", "--extern-only", "-p", *flags, archive], check=True,
                             capture_output=True, text=True).stdout
        return [line.split(None, 2)[2] for line in out.splitlines() if re.match(r"[0-9a-f]+ \w ", line)]
    return zip(run(), run("-C"))


def version_script(version, names):
    lines = "".join(f"    {name};\n" for name in sorted(names))
    return f"{version} {{\n  global:\n{lines}  local:\n    *;\n}};\n"


def self_test():
    text = """
// void comment();
#define X void macro();
namespace qkv {
enum class Kind : int { a, b };
struct Plain { int x = 0; void member(); };
class Forward;
template <class T>
inline constexpr int number_of = 0;
inline constexpr int kMax = 8;
void plain(const Plain& p, std::function<void(int)> f = {});
std::vector<double> several(int n);
inline bool inlined(int n) { return n > 0; }
bool operator==(const Plain& a, const Plain& b);
}  // namespace qkv
"""
    classes, functions, bodiless = declared(text)
    assert classes == {"Kind", "Plain", "Forward"}, classes
    assert functions == {"plain", "several", "inlined", "operator=="}, functions
    assert bodiless == {"plain", "several", "operator=="}, bodiless
    for symbol, wanted in {"qkv::Plain::member()": "Plain", "qkv::plain(qkv::Plain const&)": "plain",
                           "qkv::plainer(int)": None, "typeinfo for qkv::Plain": "Plain", "qkv::Plain::Impl::f()": None,
                           "qkv::several[abi:cxx11](int)": "several", "std::vector<qkv::Plain>::size()": None,
                           "qkv::operator==(qkv::Plain const&, qkv::Plain const&)": "operator=="}.items():
        assert owner(symbol, classes, functions) == wanted, symbol


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("archive")
    parser.add_argument("headers", nargs="+", type=pathlib.Path)
    given = parser.parse_args()
    classes, functions, bodiless, names = set(), set(), set(), set()
    for header in given.headers:
        text = header.read_text(encoding="utf-8")
        if header.name == "qkv_c.h":
            names.update(re.findall(r"^[\w\s*]*?\b(qkv_\w+)\(", NOT_CODE.sub("", text), re.M))
        for to, found in zip((classes, functions, bodiless), declared(text)):
            to.update(found)
    defined, owners = set(), set()
    for mangled, demangled in symbols(given.nm, given.archive):
        found = owner(demangled, classes, functions)
        defined.add(mangled)
        if found:
            names.add(mangled)
            owners.add(found)
    missing = sorted((bodiless - owners) | {name for name in names if name not in defined})
    if missing:
        sys.exit(f"export_map.py: declared in a public header but not defined: {', '.join(missing)}")
    given.out.write_text(version_script(given.version, names), encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
