#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the attention of qkv with PyTorch's scaled_dot_product_attention: the same shapes, forward and backward, f32
and bf16, the same number of threads. Each side runs in its own process, in alternating rounds, so that they do not
disturb each other and a slowdown of the machine affects both. Prints the median of the rounds, the ratio of the medians
(above 1: qkv is faster) and the smallest and largest ratio per round.

    scripts/bench_peers.py                                     PyTorch of the current Python
    scripts/bench_peers.py --python VENV/bin/python            PyTorch of another Python
    scripts/bench_peers.py --shapes 1x12x1024x64 --dtype f32 --threads 1
    scripts/bench_peers.py --what train --rounds 3             training steps of ANDREA-120M, PyTorch eager and compiled
                                                               (which needs a C++ compiler)
    scripts/bench_peers.py --what generate --model FILE.gguf --python VENV/bin/python
                                                               prefill and decode compared with llama.cpp; the VENV
                                                               needs `xllamacpp` (pip install xllamacpp), no PyTorch

Needs build/release/qkv (make build) and PyTorch 2 or later, in a virtual environment outside the repository. The x86
build on PyPI loads large CUDA libraries even if only the CPU is used. With a CUDA toolkit of the same major version on
the machine they need not be downloaded:

    python3 -m venv ~/venv-torch
    ~/venv-torch/bin/pip install --no-deps torch filelock typing-extensions sympy networkx jinja2 fsspec mpmath \\
        MarkupSafe numpy
    ~/venv-torch/bin/pip install --no-deps nvidia-cufile nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-nccl-cu13
    scripts/bench_peers.py --python ~/venv-torch/bin/python --libraries /usr/local/cuda/lib64

(the second pip command installs libraries that toolkits lack or have in an older version; libraries that pip installed
under the virtual environment's nvidia/ folder are found automatically). With PyTorch older than 2, matmul, softmax and
matmul are measured instead, and the output says so. No test runs this script.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = "1x12x1024x64,1x12x4096x64,4x12x1024x64:full,1x8x2048x128:kv=2"


def parse_shape(text):
    """BxHxTxD[:kv=N][:causal|:full], as in qkv bench."""
    plain, *suffixes = text.split(":")
    sizes = plain.split("x")
    if len(sizes) != 4 or not all(n.isdigit() and int(n) > 0 for n in sizes):
        raise ValueError(f"a shape is BxHxTxD[:kv=N][:full]; found '{text}'")
    batch, heads, length, d = map(int, sizes)
    shape = {"batch": batch, "heads": heads, "length": length, "d": d, "kv": heads, "causal": True}
    for suffix in suffixes:
        if suffix in ("causal", "full"):
            shape["causal"] = suffix == "causal"
        elif suffix.startswith("kv=") and suffix[3:].isdigit():
            shape["kv"] = int(suffix[3:])
        else:
            raise ValueError(f"unknown suffix '{suffix}' in '{text}'")
    return shape


# ---- PyTorch's side: one shape, in its own process ------------------------------------------------------------------

def torch_functions(torch, shape, dtype):
    """The name of the measured function, and functions that run one pass."""
    generator = torch.Generator().manual_seed(1)

    def numbers(heads):
        x = torch.randn(shape["batch"], heads, shape["length"], shape["d"], generator=generator)
        return x.to(dtype).requires_grad_()

    q, k, v = numbers(shape["heads"]), numbers(shape["kv"]), numbers(shape["kv"])
    grouped = shape["kv"] != shape["heads"]
    if hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        name = "scaled_dot_product_attention"
        options = {"enable_gqa": True} if grouped else {}

        def attend():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=shape["causal"], **options)
    else:
        name = "matmul, softmax, matmul"
        hidden = torch.ones(shape["length"], shape["length"], dtype=torch.bool).triu(1)

        def attend():
            times = shape["heads"] // shape["kv"]
            keys, values = (x.repeat_interleave(times, 1) if grouped else x for x in (k, v))
            scores = q @ keys.transpose(-1, -2) * shape["d"] ** -0.5
            if shape["causal"]:
                scores = scores.masked_fill(hidden, float("-inf"))
            return scores.softmax(-1) @ values

    def forward():
        with torch.no_grad():
            attend()

    out = attend()
    dout = torch.randn(out.shape, generator=generator).to(dtype)

    def backward():
        torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

    return name, {"forward": forward, "backward": backward}


def time_of(work, reps):
    """Median milliseconds; short work runs several times per sample."""
    work()
    start = time.perf_counter()
    work()
    times = max(1, round(2e-3 / max(1e-7, time.perf_counter() - start)))
    samples = []
    for _ in range(reps):
        start = time.perf_counter()
        for _ in range(times):
            work()
        samples.append((time.perf_counter() - start) / times * 1e3)
    return statistics.median(samples)


def torch_side(arguments):
    import torch
    torch.set_num_threads(arguments.threads)
    result = {"version": torch.__version__, "ms": {}}
    for dtype in arguments.dtype.split(","):
        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        result["name"], passes = torch_functions(torch, parse_shape(arguments.shapes), kind)
        for name in arguments.passes.split(","):
            result["ms"][f"{name} {dtype}"] = time_of(passes[name], arguments.reps)
    print(json.dumps(result))


# ---- alternating rounds
# -----------------------------------------------------------------------------------------------

def torch_libraries(python, more):
    """The LD_LIBRARY_PATH: libraries that pip installed with PyTorch, and the given folders."""
    site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
                          capture_output=True, text=True, check=True).stdout.strip()
    found = [str(p) for p in sorted(pathlib.Path(site).glob("nvidia/*/lib"))]
    return ":".join(found + ([more] if more else []) + [p for p in [os.environ.get("LD_LIBRARY_PATH")] if p])


def run(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"bench_peers: {' '.join(command)} failed:\n{done.stderr.strip()}")
    return done.stdout


def commands(arguments, shape):
    ours = [arguments.qkv, "bench", "attention", "--json", "--shapes", shape, "--pass", arguments.passes, "--dtype",
            arguments.dtype, "--threads", str(arguments.threads), "--reps", str(arguments.reps)]
    theirs = [arguments.python, str(pathlib.Path(__file__).resolve()), "--torch-side", "--shapes", shape, "--passes",
              arguments.passes, "--dtype", arguments.dtype, "--threads", str(arguments.threads), "--reps",
              str(arguments.reps)]
    return ours, theirs


def compare(arguments, shape, environment):
    ours_command, theirs_command = commands(arguments, shape)
    ours, theirs, fractions = {}, {}, {}
    for turn in range(arguments.rounds):
        lines = [json.loads(line) for line in run(ours_command).splitlines()]
        other = json.loads(run(theirs_command, environment))
        if turn == 0:
            print(f"\n{shape}: {other['name']} of PyTorch {other['version']}, kernels {lines[0]['kernels']}, "
                  f"{arguments.threads} threads, {arguments.rounds} rounds, median of {arguments.reps} runs")
            print(f"  {' '.join(ours_command)}\n  {' '.join(theirs_command)}")
        for line in lines:
            name = f"{line['pass']} {line['dtype']}"
            ours.setdefault(name, []).append(line["ms"])
            fractions.setdefault(name, []).append(line["fraction"])
        for name, ms in other["ms"].items():
            theirs.setdefault(name, []).append(ms)
    for name, mine in ours.items():
        ratios = sorted(b / a for a, b in zip(mine, theirs[name]))
        middle, other = statistics.median(mine), statistics.median(theirs[name])
        fraction = statistics.median(fractions[name])
        print(f"  {name:<14} qkv {middle:9.3f} ms ({fraction:6.1%} of peak)   PyTorch {other:9.3f} ms "
              f"({fraction * middle / other:6.1%})   ratio {other / middle:6.2f}  ({ratios[0]:.2f} to {ratios[-1]:.2f})",
              flush=True)


def compare_training(arguments, dtype, environment):
    """Training steps: qkv, PyTorch eager and compiled, in alternating rounds."""
    ours = [arguments.qkv, "bench", "train", "--json", "--preset", arguments.preset, "--dtype", dtype, "--threads",
            str(arguments.threads), "--batch-size", "4", "--steps", str(arguments.steps)]
    theirs = {mode: [arguments.python, str(ROOT / "scripts/peers_train.py"), "--preset", arguments.preset, "--dtype",
                     dtype, "--mode", mode, "--threads", str(arguments.threads), "--steps", str(arguments.steps)]
              for mode in arguments.modes.split(",")}
    mine, others, fractions, version = [], {mode: [] for mode in theirs}, [], ""
    for _ in range(arguments.rounds):
        line = json.loads(run(ours))
        mine.append(line["tokens_per_s"])
        fractions.append(line["fraction"])
        for mode, command in theirs.items():
            other = json.loads(run(command, environment))
            others[mode].append(other["tokens_per_s"])
            version = other["version"]
    middle = statistics.median(mine)
    print(f"\n{arguments.preset} {dtype}, 4 sequences per step, {arguments.threads} threads, alternating rounds: "
          f"{arguments.rounds}\n  qkv {middle:8.1f} tokens/s ({statistics.median(fractions):.1%} of peak)")
    for mode, rates in others.items():
        ratios = sorted(a / b for a, b in zip(mine, rates))
        print(f"  PyTorch {version} {mode:<9} {statistics.median(rates):8.1f} tokens/s   ratio "
              f"{middle / statistics.median(rates):6.2f}  ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)


def compare_generation(arguments):
    """Prefill and decode tokens per second of qkv and llama.cpp, alternating, for an empty and a filled context."""
    threads, reps = str(arguments.threads), str(arguments.reps)
    cases = [("512", "128", "0")] + ([("0", "32", str(arguments.depth))] if arguments.depth else [])
    for prompt, generate, depth in cases:
        shared = ["-p", prompt, "-n", generate, "--depth", depth, "--cache-type", arguments.cache_type, "--threads",
                  threads, "--reps", reps]
        ours = [arguments.qkv, "bench", "generate", "--json", "-m", arguments.model] + shared
        theirs = [arguments.python, str(ROOT / "scripts/peers_generate.py"), "--model", arguments.model, "--prompt",
                  prompt, "--generate", generate] + shared[4:]
        mine, others, fractions, version = {}, {}, {}, ""
        for _ in range(arguments.rounds):
            for line in map(json.loads, run(ours).splitlines()):
                mine.setdefault(line["test"][:2], []).append(line["tokens_per_s"])
                fractions.setdefault(line["test"][:2], []).append(line["fraction"])
            other = json.loads(run(theirs).splitlines()[-1])
            version = other["version"]
            for name in mine:
                others.setdefault(name, []).append(other[f"{name}_median"])
        print(f"\n{arguments.model}: {threads} threads, cache {arguments.cache_type}, depth {depth}, rounds: "
              f"turn: {arguments.rounds}\n  {' '.join(ours)}\n  {' '.join(theirs)}")
        for name, rates in mine.items():
            ratios = sorted(a / b for a, b in zip(rates, others[name]))
            print(f"  {name + (prompt if name == 'pp' else generate):<8} qkv {statistics.median(rates):8.1f} tokens/s "
                  f"({statistics.median(fractions[name]):6.1%} of the limit)   llama.cpp (xllamacpp {version}) "
                  f"{statistics.median(others[name]):8.1f}   ratio {statistics.median(ratios):5.2f}  "
                  f"({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qkv", default=str(ROOT / "build/release/qkv"), help="the qkv executable (build/release/qkv)")
    parser.add_argument("--python", default=sys.executable, help="Python with PyTorch (this one)")
    parser.add_argument("--libraries", default="", help="folders of shared libraries for PyTorch, separated by ':'")
    parser.add_argument("--shapes", default=SHAPES, help=f"BxHxTxD[:kv=N][:full], comma-separated ({SHAPES})")
    parser.add_argument("--passes", default="forward,backward", help="forward,backward")
    parser.add_argument("--dtype", default="f32,bf16", help="f32,bf16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads (one per core)")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds (5)")
    parser.add_argument("--reps", type=int, default=7, help="runs per round, median (7)")
    parser.add_argument("--what", default="attention", choices=["attention", "train", "generate"],
                        help="attention, training steps or generation")
    parser.add_argument("--model", default="", help="for --what generate: a GGUF file")
    parser.add_argument("--depth", type=int, default=8000, help="for --what generate: depth of the context (8000)")
    parser.add_argument("--cache-type", default="f16", choices=["f32", "bf16", "f16", "q8_0"], help="KV cache type")
    parser.add_argument("--preset", default="andrea-120m", choices=["andrea-12m", "andrea-120m"], help="to train")
    parser.add_argument("--modes", default="eager,compiled", help="PyTorch training modes: eager,compiled")
    parser.add_argument("--steps", type=int, default=3, help="training steps per round, after a warm-up step (3)")
    parser.add_argument("--torch-side", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for shape in arguments.shapes.split(","):
        try:
            parse_shape(shape)
        except ValueError as error:
            parser.error(str(error))
    if not set(arguments.passes.split(",")) <= {"forward", "backward"}:
        parser.error("--passes expected forward or backward")
    if not set(arguments.modes.split(",")) <= {"eager", "compiled"}:
        parser.error("--modes expected eager or compiled")
    if not set(arguments.dtype.split(",")) <= {"f32", "bf16"}:
        parser.error("--dtype expected f32 or bf16")
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.torch_side:
        return torch_side(arguments)
    if not pathlib.Path(arguments.qkv).exists():
        sys.exit(f"bench_peers: {arguments.qkv} does not exist: run make build, or use --qkv")
    if arguments.what == "generate":
        if not arguments.model:
            sys.exit("bench_peers: --what generate needs --model FILE.gguf")
        return compare_generation(arguments)
    environment = {**os.environ, "LD_LIBRARY_PATH": torch_libraries(arguments.python, arguments.libraries),
                   "OMP_NUM_THREADS": str(arguments.threads)}
    probe = subprocess.run([arguments.python, "-c", "import torch"], capture_output=True, text=True, env=environment)
    if probe.returncode != 0:
        sys.exit(f"bench_peers: {arguments.python} cannot import torch: {probe.stderr.strip().splitlines()[-1]}\n"
                 "(see --help for the installation)")
    if arguments.what == "train":
        for dtype in arguments.dtype.split(","):
            compare_training(arguments, dtype, environment)
        return
    for shape in arguments.shapes.split(","):
        compare(arguments, shape, environment)


if __name__ == "__main__":
    main()
