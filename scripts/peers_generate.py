#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures llama.cpp through the wheel `xllamacpp` from PyPI: prefill and decode speed, as one JSON object.
scripts/bench_peers.py --what generate alternates it with qkv bench generate.

    peers_generate.py --model FILE.gguf --prompt 512 --generate 128 --depth 0 --cache-type f16 --threads 2 --reps 3

Prompts are random token ids, and nothing is cached between runs. The times are llama.cpp's own (`timings`), without
sampling and its server. --depth N evaluates N tokens first.
"""
import argparse
import importlib.metadata
import json
import random
import statistics


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--cache-type", default="f16", choices=["f32", "bf16", "f16", "q8_0"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reps", type=int, default=3)
    return parser.parse_args()


def server_of(a, xllamacpp):
    params = xllamacpp.CommonParams()
    params.model.path = a.model
    params.n_ctx = max(a.depth + a.generate, a.prompt) + 64
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = a.threads
    kind = {"f32": "GGML_TYPE_F32", "bf16": "GGML_TYPE_BF16", "f16": "GGML_TYPE_F16", "q8_0": "GGML_TYPE_Q8_0"}
    params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, kind[a.cache_type])
    params.cache_prompt = False
    params.verbosity = 0
    return xllamacpp.Server(params)


def timings(server, count, generate, seed):
    draw = random.Random(seed)
    answer = server.handle_completions({"prompt": [draw.randrange(300, 40000) for _ in range(count)],
                                        "max_tokens": generate, "n_predict": generate, "ignore_eos": True,
                                        "temperature": 0, "cache_prompt": False})
    if isinstance(answer, (str, bytes)):
        answer = json.loads(answer)
    return answer["timings"]


def main():
    a = arguments_of()
    import xllamacpp
    server = server_of(a, xllamacpp)
    timings(server, 32, 2, 0)  # warm-up
    result = {"version": importlib.metadata.version("xllamacpp")}
    if a.prompt:
        result["pp"] = [timings(server, a.prompt, 1, 1 + i)["prompt_per_second"] for i in range(a.reps)]
    if a.generate:
        result["tg"] = [timings(server, max(1, a.depth), a.generate, 100 + i)["predicted_per_second"]
                        for i in range(a.reps)]
    for name in ("pp", "tg"):
        if name in result:
            result[f"{name}_median"] = statistics.median(result[name])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
