#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completions match --help, for every command and option, and work in the shells.

    pages_test.py QKV
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

QKV = sys.argv[1]
OPTION = re.compile(r"^  (?:    )?(-\S.*?)(?:  |$)", re.M)


def run(*command, **more):
    ran = subprocess.run(command, text=True, capture_output=True, check=False, **more)
    if ran.returncode != 0 or ran.stderr:
        sys.exit(f"{command}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def commands_and_options(path=()):
    """{("bench", "peak"): {"--options", ...}} from the texts of --help."""
    text = run(QKV, *path, "--help")
    options = set()
    for line in OPTION.findall(text):
        for name in (word.split()[0] for word in line.split(", ") if word.startswith("-")):
            options |= {name.replace("[no-]", ""), name.replace("[no-]", "no-")}
    found = {path: options}
    if "Commands:" in text:
        below = text.split("Commands:\n")[1].split("\n\n")[0]
        for name in re.findall(r"^  (\w+)", below, re.M):
            found.update(commands_and_options((*path, name)))
    return found


def plain(roff):
    return re.sub(r"\\f[BIR]", "", roff).replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")


def check_pages(folder, commands):
    run(QKV, "man", "--out", folder)
    wanted = {"-".join(("qkv", *path)) + ".1" for path in commands}
    assert {p.name for p in pathlib.Path(folder).iterdir()} == wanted, "other pages than commands"
    for path, options in commands.items():
        text = (pathlib.Path(folder) / ("-".join(("qkv", *path)) + ".1")).read_text(encoding="utf-8")
        listed = set(re.findall(r"(?<!\w)--?[\w-]+", " ".join(re.findall(r"^\.TP\n(.*)$", plain(text), re.M))))
        assert options <= listed, f"{path}: the page lacks {options - listed}"
        assert text == run(QKV, "man", *path), path
        assert not re.search(r"^['.](?!(TH|SH|SS|TP|nf|fi)\b)", text, re.M), f"{path}: a line that roff would obey"
        if shutil.which("man"):
            run("man", "--warnings=w", "-E", "UTF-8", "-l", "-Tutf8", "-P", "cat", "-", input=text)


BASH = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"
_qkv
printf '%s\n' "${COMPREPLY[@]}"
"""


def bash(script, *words):
    return set(run("bash", "-c", BASH, "bash", script, "qkv", *words).split())


def check_bash(folder, commands):
    script = pathlib.Path(folder) / "bash"
    script.write_text(run(QKV, "completion", "bash"), encoding="utf-8")
    for path, options in commands.items():
        assert bash(script, *path, "-") == options, (path, bash(script, *path, "-") ^ options)
        below = {p[-1] for p in commands if p[:-1] == path and p}
        assert below <= bash(script, *path, ""), path
    assert bash(script, "attend", "--causal", "") == {"top-left", "bottom-right", "start"}
    assert bash(script, "attend", "--causal", "=", "b") == {"bottom-right"}
    assert bash(script, "attend", "--scale", "") == set()
    assert bash(script, "completion", "z") == {"zsh"}
    (pathlib.Path(folder) / "a b.npy").touch()
    shown = run("bash", "-c", BASH, "bash", script, "qkv", "attend", "--q", f"{folder}/a").strip()
    assert shown == f"{folder}/a b.npy", shown


def check_others(folder, commands):
    for shell in ("zsh", "fish"):
        script = pathlib.Path(folder) / shell
        script.write_text(run(QKV, "completion", shell), encoding="utf-8")
        text = script.read_text(encoding="utf-8")
        for path, options in commands.items():
            for option in options:
                word = option if shell == "zsh" else f"-{'l' if option.startswith('--') else 's'} {option.lstrip('-')} "
                assert word in text, f"{shell}: {path} lacks {option}"
        if not shutil.which(shell):
            print(f"{shell} is not installed: its script was read, not run")
            continue
        run(shell, "-n", script)
        if shell == "fish":
            for words, wanted in {"qkv bench ": "peak", "qkv attend --causal b": "bottom-right", "qkv inf": "info",
                                  "qkv bench train --pre": "--preset"}.items():
                out = run("fish", "--no-config", "-c", f"source {script}; complete -C '{words}'")
                assert wanted in re.split(r"\s", out), (words, out)


def main():
    commands = commands_and_options()
    assert len(commands) > 10 and all("--help" in options for options in commands.values()), commands
    with tempfile.TemporaryDirectory() as folder:
        check_pages(f"{folder}/man", commands)
        check_bash(folder, commands)
        check_others(folder, commands)
    refused = subprocess.run([QKV, "man", "nonsense"], capture_output=True, check=False)
    assert refused.returncode == 2 and refused.stderr.count(b"\n") == 1, refused
    refused = subprocess.run([QKV, "man", "--out", "/proc/none"], capture_output=True, check=False)
    assert refused.returncode == 1 and refused.stderr.count(b"\n") == 1, refused
    print(f"{len(commands)} commands, {sum(map(len, commands.values()))} options")


if __name__ == "__main__":
    main()
