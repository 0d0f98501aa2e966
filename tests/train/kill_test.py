# SPDX-License-Identifier: Apache-2.0
"""Kills qkv train at chosen moments, resumes it and compares every bit with an uninterrupted run.

    kill_test.py QKV [COUNT]     COUNT kills (default 20)

At least half of the kills happen at a system call that changes a file: each kind of write, sync, rename, link and so on
that a run makes (src/os/file_steps.h). The rest happen at random times, up to ten in one run. Exits with 1 and prints the
place if a bit differs or a directory cannot be resumed.
"""

import collections
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

from memory_folder import make_memory_folder

OPTIONS = ["--n-layer", "1", "--n-head", "2", "--d-model", "8", "--ctx-len", "8", "--batch-size", "1", "--tokenizer",
           "bytes", "--threads", "1", "--sample-interval", "0", "--eval-iters", "1", "--keep", "2"]
SHORT = ["--steps", "6", "--checkpoint-interval", "2", "--eval-interval", "3"]
LONG = ["--steps", "400", "--checkpoint-interval", "3", "--eval-interval", "5", "--log-interval", "1"]


class Killer:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.text = os.path.join(folder, "text")
        with open(self.text, "w") as file:
            file.write("in the beginning was the word and light over water\n" * 40)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def resumable(self, out):
        try:
            return any(re.fullmatch("step-[0-9]{6}", name) for name in os.listdir(self.path(out, "checkpoints")))
        except FileNotFoundError:
            return False

    def command(self, out, options):
        begin = ["--resume"] if self.resumable(out) else []
        return [self.program, "train", "--data", self.text, "--out", self.path(out), *begin, *OPTIONS, *options]

    def run(self, out, options, steps=None):
        """Runs to the end, or until `steps` kills it. Returns whether it reached the end."""
        environment = dict(os.environ, OMP_WAIT_POLICY="passive")
        if steps:
            environment["QKV_FILE_STEPS"] = steps
        done = subprocess.run(self.command(out, options), env=environment, capture_output=True, timeout=120)
        if done.returncode not in ((0, -signal.SIGKILL) if steps else (0,)):
            raise SystemExit(f"{out}: exit status {done.returncode}\n{done.stderr.decode()}")
        return done.returncode == 0

    def kill_by_clock(self, out, options, draw):
        """Kills a run a moment after its first step. Returns whether it died."""
        process = subprocess.Popen(self.command(out, options), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for line in process.stdout:
            if line.startswith(b"step"):
                break
        time.sleep(0.05 * draw.random())
        process.kill()
        process.communicate()
        return process.returncode == -signal.SIGKILL

    def tree(self, out):
        """Every file of a run with its contents, without anything that depends on the time."""
        found = {}
        for folder, _, names in os.walk(self.path(out)):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    content = file.read()
                if name == "metrics.jsonl":
                    lines = [json.loads(line) for line in content.splitlines()]
                    content = [{k: v for k, v in line.items() if k not in ("ms", "tokens_per_s", "peak_fraction")}
                               for line in lines]
                if name in ("run.json", "report.html"):  # they contain the start time and the number of starts
                    content = None
                found[os.path.relpath(os.path.join(folder, name), self.path(out))] = content
        return found

    def compare(self, out, whole, where):
        found = self.tree(out)
        nothing = object()
        differing = sorted(n for n in whole.keys() | found.keys() if whole.get(n, nothing) != found.get(n, nothing))
        if differing:
            raise SystemExit(f"killed {where}: these differ from an uninterrupted run: {differing}")
        shutil.rmtree(self.path(out))


def in_turns(lists):
    """The first of each list, then the second of each, ..."""
    return [entry for turn in itertools.zip_longest(*lists) for entry in turn if entry]


def places(log, wanted):
    """Chooses `wanted` file steps: round-robin over the system calls, and over the files of each."""
    calls = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in log.splitlines():
        number, name, path = line.split(" ", 2)
        calls[name][re.sub(r"\.\d+-\d+\.tmp|\d+", "", path)].append((int(number), name, path))
    draw = random.Random(1)
    for files in calls.values():
        for entries in files.values():
            draw.shuffle(entries)
    chosen = in_turns(in_turns(files.values()) for files in calls.values())
    return (chosen * (wanted // len(chosen) + 1))[:wanted]


def kill_in_places(killer, count):
    killer.run("straight", SHORT, "log:" + killer.path("log"))
    with open(killer.path("log")) as file:
        log = file.read()
    whole = killer.tree("straight")
    shutil.rmtree(killer.path("straight"))
    kinds = collections.Counter()
    for i, (number, name, path) in enumerate(places(log, count)):
        if killer.run("killed", SHORT, f"kill:{number}"):
            raise SystemExit(f"file step {number} ({name} {path}) did not occur")
        if i % 3 == 2:  # a second time, while resuming
            killer.run("killed", SHORT, f"kill:{1 + 7 * i % 40}")
        killer.run("killed", SHORT)
        killer.compare("killed", whole, f"at {name} {path}")
        kinds[name] += 1
    print(f"{count} kills at a system call ({', '.join(f'{n} {k}' for k, n in kinds.items())}) of "
          f"{len(log.splitlines())}: the same bits each time")


def kill_by_clock(killer, count, optimizer):
    options = [*LONG, "--optimizer", optimizer]
    killer.run("straight", options)
    whole = killer.tree("straight")
    shutil.rmtree(killer.path("straight"))
    draw = random.Random(7)
    kills = runs = 0
    while kills < count:
        runs += 1
        for _ in range(min(10, count - kills)):
            kills += killer.kill_by_clock("killed", options, draw)
        killer.run("killed", options)
        killer.compare("killed", whole, "by time")
    print(f"{kills} kills by time in {runs} runs with {optimizer}: the same bits each time")


def main():
    program = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    folder = make_memory_folder("qkv-kill-")
    try:
        killer = Killer(program, folder)
        by_clock = count // 2 if count > 40 else count * 3 // 10
        kill_in_places(killer, count - by_clock)
        kill_by_clock(killer, by_clock - by_clock // 2, "adamw")
        kill_by_clock(killer, by_clock // 2, "muon")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
