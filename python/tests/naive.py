# SPDX-License-Identifier: Apache-2.0
"""Attention directly from its equations, in float64: the reference for the package's results."""
import numpy as np



def allowed(q_len, kv_len, causal=None, start=None, window=None, q_length=None, kv_length=None):
    """[q_len, kv_len]: the visible keys of each query, for one sequence."""
    q_length = q_len if q_length is None else q_length
    kv_length = kv_len if kv_length is None else kv_length
    at = np.arange(q_len) + ({"bottom_right": kv_length - q_length, "top_left": 0}.get(causal, start) or 0)
    j = np.arange(kv_len)[None, :]
    may = (j < kv_length) & (np.arange(q_len)[:, None] < q_length)
    if causal:
        may &= j <= at[:, None]
    left, right = window or (-1, -1)
    if left >= 0:
        may &= j >= at[:, None] - left
    if right >= 0:
        may &= j <= at[:, None] + right
    return may


def attention(q, k, v, *, may=True, bias=0.0, scale=None, softcap=0.0, sinks=None):
    """q [..., n_head, q_len, d_k]; k and v may have fewer heads. Returns out, lse and probs."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[-3] // k.shape[-3]
    k, v = np.repeat(k, group, axis=-3), np.repeat(v, group, axis=-3)
    scores = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(may, scores + bias, -np.inf)
    readable = np.isfinite(scores).any(-1, keepdims=True)
    most = np.where(readable, scores.max(-1, keepdims=True, initial=-1e300), 0)
    weights = np.exp(scores - most)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.where(readable, np.exp(np.asarray(sinks)[:, None, None] - most), 0)
    probs = np.divide(weights, total, out=np.zeros_like(weights), where=readable)
    with np.errstate(divide="ignore"):
        lse = np.where(readable, np.log(total) + most, -np.inf)[..., 0]
    return probs @ v, lse, probs
