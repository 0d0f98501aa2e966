# SPDX-License-Identifier: Apache-2.0
"""An ONNX backend that runs models of a single Attention node (opsets 23 to 25) with qkv.

https://onnx.ai/onnx/operators/onnx__Attention.html
"""
import numpy as np
import onnx
import onnx.backend.base
import qkv

# The steps of attention by qk_matmul_output_mode, numbered as in opset 24's reference.
STEPS = ("scores", "softcapped", "masked", "probs")


def heads_apart(x, heads):
    """[batch, seq, heads * d] as [batch, heads, seq, d]; four axes are returned unchanged."""
    return x if x.ndim == 4 else x.reshape(x.shape[0], x.shape[1], heads, -1).swapaxes(1, 2)


def padded(mask, kv_len):
    """Masks the keys past the end of a mask."""
    missing = kv_len - mask.shape[-1]
    if missing <= 0:
        return mask
    fill = np.zeros((), mask.dtype) if mask.dtype == np.bool_ else np.array(-np.inf, mask.dtype)
    return np.concatenate([mask, np.full((*mask.shape[:-1], missing), fill)], axis=-1)


def attention(q, k, v, mask=None, past_k=None, past_v=None, nonpad_kv_seqlen=None, *, is_causal=0, q_num_heads=0,
              kv_num_heads=0, qk_matmul_output_mode=0, scale=None, softcap=0.0, softmax_precision=None,
              left_window_size=-1, right_window_size=-1):
    """The operator: Y, present_key, present_value, qk_matmul_output. The softmax is in f32 or wider regardless of
    softmax_precision, which the operator allows."""
    joined = q.ndim == 3
    q, k, v = heads_apart(q, q_num_heads), heads_apart(k, kv_num_heads), heads_apart(v, kv_num_heads)
    start = 0
    if past_k is not None:
        start = past_k.shape[2]
        k, v = np.concatenate([past_k, k], axis=2), np.concatenate([past_v, v], axis=2)
    options = dict(scale=scale, softcap=softcap)
    if mask is not None:
        options["mask"] = padded(mask, k.shape[2])
    if nonpad_kv_seqlen is not None:
        options["kv_lengths"] = nonpad_kv_seqlen
        start = nonpad_kv_seqlen - q.shape[2]
    if is_causal:
        options.update(causal="start", start=start)
    if left_window_size >= 0 or right_window_size >= 0:
        options.update(window=(left_window_size, right_window_size), start=start)
    y = qkv.attention(q, k, v, **options)
    steps = qkv.attention_steps(q, k, v, **options)
    if joined:
        y = y.swapaxes(1, 2).reshape(y.shape[0], y.shape[2], -1)
    return y, k, v, getattr(steps, STEPS[qk_matmul_output_mode]).astype(q.dtype)


class Node(onnx.backend.base.BackendRep):
    def __init__(self, graph):
        (self.node,) = graph.node
        self.names = [i.name for i in graph.input]
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in self.node.attribute}

    def run(self, inputs, **_):
        given = dict(zip(self.names, inputs))
        results = attention(*(given[name] if name else None for name in self.node.input), **self.attributes)
        return [result for name, result in zip(self.node.output, results) if name]


class Backend(onnx.backend.base.Backend):
    @classmethod
    def prepare(cls, model, device="CPU", **_):
        if [node.op_type for node in model.graph.node] != ["Attention"]:
            raise NotImplementedError("only a single Attention node is supported")
        return Node(model.graph)

    @classmethod
    def supports_device(cls, device):
        return device == "CPU"
