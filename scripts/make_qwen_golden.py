#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/formats/golden/hf_qwen2* and hf_qwen3*: tiny random models in the format of `transformers`, and their
logits from the equations of its modeling_qwen2.py and modeling_qwen3.py, in NumPy and f64.

    NAME/                config.json, model.safetensors, tokenizer.json (that of hf_llama)
    NAME_WHAT.npy        tokens [batch, ctx], targets [batch, ctx], logits [batch, ctx, vocab], loss [1]

    make_qwen_golden.py                 writes the files
    make_qwen_golden.py --check DIR     compares the equations with a model of either family saved by transformers in
                                        DIR, with its tokens.npy and logits.npy; exits 1 if they differ

Needs NumPy; the tests do not.
"""
import json
import pathlib
import shutil
import sys

import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "formats" / "golden"
VOCAB, CTX, BATCH = 272, 10, 2
COMMON = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=20, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, hidden_act="silu", rms_norm_eps=1e-6, bos_token_id=None,
              eos_token_id=256, attention_dropout=0.0, torch_dtype="float32")
MODELS = {
    "hf_qwen2": dict(COMMON, model_type="qwen2", architectures=["Qwen2ForCausalLM"], tie_word_embeddings=False,
                     rope_theta=100.0, use_sliding_window=True, sliding_window=3, max_window_layers=1),
    "hf_qwen3": dict(COMMON, model_type="qwen3", architectures=["Qwen3ForCausalLM"], tie_word_embeddings=True, head_dim=6,
                     attention_bias=False, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
                     use_sliding_window=False, sliding_window=None, layer_types=["full_attention"] * 3),
}


def shapes(c):
    d, ff, head = c["hidden_size"], c["intermediate_size"], head_dim(c)
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (d,)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            yield layer + f"self_attn.{name}_proj.weight", (rows, d)
            if c["model_type"] == "qwen2":
                yield layer + f"self_attn.{name}_proj.bias", (rows,)
        if c["model_type"] == "qwen3":
            yield layer + "self_attn.q_norm.weight", (head,)
            yield layer + "self_attn.k_norm.weight", (head,)
        yield layer + "self_attn.o_proj.weight", (d, q)
        yield layer + "post_attention_layernorm.weight", (d,)
        yield layer + "mlp.gate_proj.weight", (ff, d)
        yield layer + "mlp.up_proj.weight", (ff, d)
        yield layer + "mlp.down_proj.weight", (d, ff)
    yield "model.norm.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)


def head_dim(c):
    return c.get("head_dim") or (128 if c["model_type"] == "qwen3" else c["hidden_size"] // c["num_attention_heads"])


def rms(x, weight, eps):
    return weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def rotate(x, theta):  # [heads, ctx, head]
    ctx, head = x.shape[1:]
    angles = np.arange(ctx)[:, None] * theta ** (-np.arange(0, head, 2) / head)  # [ctx, head / 2]
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[..., :head // 2], x[..., head // 2:]
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def window(c, i):
    if not c.get("use_sliding_window") or c.get("sliding_window") is None:
        return None
    types = c.get("layer_types")
    windowed = types[i] == "sliding_attention" if types else i >= c.get("max_window_layers", 28)
    return c["sliding_window"] if windowed else None


def attention(c, w, i, x):  # [ctx, d]
    ctx, head = len(x), head_dim(c)

    def heads(name, count):
        y = x @ w[f"{name}_proj.weight"].T + w.get(f"{name}_proj.bias", 0.0)
        y = y.reshape(ctx, count, head).transpose(1, 0, 2)  # [count, ctx, head]
        return rms(y, w[f"{name}_norm.weight"], c["rms_norm_eps"]) if f"{name}_norm.weight" in w else y

    theta = (c.get("rope_parameters") or c)["rope_theta"]
    n_head, n_kv = c["num_attention_heads"], c["num_key_value_heads"]
    q = rotate(heads("q", n_head), theta)
    k = rotate(heads("k", n_kv), theta).repeat(n_head // n_kv, 0)
    v = heads("v", n_kv).repeat(n_head // n_kv, 0)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(head)
    at, to = np.arange(ctx)[:, None], np.arange(ctx)
    allowed = to <= at
    if window(c, i):
        allowed &= to > at - window(c, i)
    scores = np.where(allowed, scores, -np.inf)
    probs = np.exp(scores - scores.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    out = (probs @ v).transpose(1, 0, 2).reshape(ctx, n_head * head) @ w["o_proj.weight"].T
    return out + w.get("o_proj.bias", 0.0)


def logits(c, tensors, tokens):  # [ctx] -> [ctx, vocab]
    tensors = {name: value.astype(np.float64) for name, value in tensors.items()}
    x = tensors["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        w = {name.removeprefix(f"model.layers.{i}."): value for name, value in tensors.items()}
        own = {name.removeprefix("self_attn."): value for name, value in w.items()}
        x = x + attention(c, own, i, rms(x, w["input_layernorm.weight"], c["rms_norm_eps"]))
        y = rms(x, w["post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate = y @ w["mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    x = rms(x, tensors["model.norm.weight"], c["rms_norm_eps"])
    head = "model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"
    return x @ tensors[head].T


def save_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        end = at + tensors[name].nbytes
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(tensors[n].tobytes() for n in sorted(tensors)))


def load_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]],
                                {"F32": "<f4"}[e["dtype"]]).reshape(e["shape"]) for name, e in header.items()}


def check(folder):
    c = json.loads((folder / "config.json").read_text())
    tensors = load_safetensors(folder / "model.safetensors")
    tokens, wanted = np.load(folder / "tokens.npy"), np.load(folder / "logits.npy")
    found = np.stack([logits(c, tensors, row) for row in tokens])
    off = np.abs(found - wanted).max() / np.abs(wanted).max()
    print(f"{folder.name}: logits differ by {off:.1e} of the largest")
    return 0 if off < 1e-6 else 1


def main():
    random = np.random.default_rng(77)
    for name, c in MODELS.items():
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tensors = {}
        for tensor, shape in shapes(c):  # larger than a usual initialization, to expose errors
            tensors[tensor] = (random.standard_normal(shape) * 0.3 + (tensor.endswith("norm.weight"))).astype(np.float32)
        (folder / "config.json").write_text(json.dumps(c, indent=2) + "\n")
        save_safetensors(folder / "model.safetensors", tensors)
        shutil.copy(OUT / "hf_llama" / "tokenizer.json", folder)
        tokens = random.integers(0, VOCAB, (BATCH, CTX))
        targets = random.integers(0, VOCAB, (BATCH, CTX))
        values = np.stack([logits(c, tensors, row) for row in tokens])
        rest = values - values.max(-1, keepdims=True)
        log_probs = rest - np.log(np.exp(rest).sum(-1, keepdims=True))
        loss = -np.take_along_axis(log_probs, targets[..., None], -1).mean()
        for what, array in (("tokens", tokens.astype(np.int32)), ("targets", targets.astype(np.int32)),
                            ("logits", values.astype(np.float32)), ("loss", np.array([loss]))):
            np.save(OUT / f"{name}_{what}.npy", array)
        print(f"{name}: {sum(t.size for t in tensors.values())} parameters, loss {loss:.6f}")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        sys.exit(check(pathlib.Path(sys.argv[2])))
    main()
