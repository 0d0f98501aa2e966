#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs qkv into a folder, moves it, and builds external projects with it.

    package_test.py BUILD SOURCE CXX CC                the installed tree: static, shared, C, versions, pkg-config, names
    package_test.py --fetch [--build] BUILD SOURCE CXX CC   FetchContent from the source: configured, or built and run
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PARTS = re.findall(r"#define QKV_VERSION_[A-Z]+ (\d+)\n", (HERE.parent.parent / "include/qkv/version.h").read_text())
VERSION = (".".join(PARTS[:2]), PARTS[2])


def run(*command, **more):
    ran = subprocess.run([str(part) for part in command], text=True, capture_output=True, check=False, **more)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def install(build, folder):
    """Installs both components, then moves them: no file may contain the original path."""
    for component in ("runtime", "development"):
        run("cmake", "--install", build, "--prefix", folder / "first", "--component", component)
    (folder / "first").rename(folder / "moved here")
    return folder / "moved here"


def outside(folder, variant, compilers, *options):
    build = folder / f"outside-{variant}"
    run("cmake", "-G", "Ninja", "-S", HERE / "outside", "-B", build, f"-DVARIANT={variant}", "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_CXX_COMPILER={compilers[0]}", f"-DCMAKE_C_COMPILER={compilers[1]}", *options)
    return build


def check_projects(folder, prefix, compilers):
    found = f"-DCMAKE_PREFIX_PATH={prefix}"
    for variant, programs in {"installed": ["use_qkv", "use_shared"], "c": ["use"]}.items():
        build = outside(folder, variant, compilers, found)
        run("cmake", "--build", build)
        for program in programs:
            needs_library = "libqkv.so" in run("objdump", "-p", build / program)
            if needs_library != (program != "use_qkv"):
                sys.exit(f"{program}: linked with the wrong kind of library")
            print(f"{variant}, {program}: {run(build / program)}", end="")


def check_pkg_config(folder, prefix, compilers):
    if not shutil.which("pkg-config"):
        sys.exit("pkg-config is not installed (scripts/install_deps.sh installs it)")
    pc = next(prefix.rglob("qkv.pc"))
    environment = {**os.environ, "PKG_CONFIG_PATH": str(pc.parent)}
    flags = run("pkg-config", "--cflags", "--libs", "qkv", env=environment)
    if run("pkg-config", "--modversion", "qkv", env=environment).strip() != ".".join(VERSION):
        sys.exit("qkv.pc: another version")
    flags = [flag.replace("\\ ", " ") for flag in re.split(r"(?<!\\)\s+", flags.strip())]
    run(compilers[1], "-std=c99", HERE / "outside/use.c", "-o", folder / "use", *flags)
    print("pkg-config: " + run(folder / "use", env={**os.environ, "LD_LIBRARY_PATH": str(pc.parent.parent)}), end="")


def check_names(prefix):
    """The shared library exports what the public headers declare: C functions, and symbols of namespace qkv."""
    library = next(prefix.rglob("libqkv.so"))
    symbols = re.findall(r"^\w+ \w (.*)$", run("nm", "-DC", "--defined-only", library), re.M)
    strange = [s for s in symbols if not re.match(r"(typeinfo (name )?for |vtable for )?qkv(::|_)", s) and "QKV_" not in s]
    inside = [s for s in symbols if re.search(r"qkv::(c_api|measure|reference|gemm|Parameters)\b", s)]
    header = (prefix / "include/qkv_c.h").read_text()
    lacking = [f for f in re.findall(r"^[\w\s*]*?\b(qkv_\w+)\(", header, re.M) if not any(s.startswith(f + "@") for s in symbols)]
    if strange or inside or lacking or len(symbols) < 100:
        sys.exit(f"libqkv.so: strange {strange[:5]}, internal {inside[:5]}, lacking {lacking}, {len(symbols)} in all")
    soname = re.search(r"SONAME\s+(\S+)", run("objdump", "-p", library))[1]
    if soname != f"libqkv.so.{VERSION[0]}":
        sys.exit(f"libqkv.so: SONAME {soname}")
    print(f"{soname}: {len(symbols)} symbols")


def check_files(prefix):
    run(prefix / "bin/qkv", "--version")
    for name in ("bin/qkv", "include/qkv/qkv.h", "include/qkv_c.h"):
        if not (prefix / name).is_file():
            sys.exit(f"{name} was not installed")
    for text in [*prefix.rglob("*.cmake"), *prefix.rglob("*.pc")]:
        if re.search(r"/tmp/|/home/|build/release|outside-", text.read_text()):
            sys.exit(f"{text.name} contains a path of the machine that built it")


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    build, source, compilers = arguments[0], arguments[1], arguments[2:4]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "--fetch" in sys.argv:
            made = outside(folder, "fetch", compilers, f"-DQKV_SOURCE={source}")
            if "--build" in sys.argv:
                run("cmake", "--build", made)
                print(f"FetchContent: {run(made / 'use_qkv')}", end="")
            return
        prefix = install(build, folder)
        check_files(prefix)
        check_names(prefix)
        check_projects(folder, prefix, compilers)
        check_pkg_config(folder, prefix, compilers)


if __name__ == "__main__":
    main()
