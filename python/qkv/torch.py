# SPDX-License-Identifier: Apache-2.0
"""PyTorch's attention, computed by qkv: the same function with gradients, and a patch for existing code.

    import qkv.torch
    counts = qkv.torch.patch()      # torch.nn.functional.scaled_dot_product_attention is now qkv's
    train(model)
    print(counts)                   # taken: 144, none refused
    counts.restore()

Tensors are zero-copy, including strided ones.
"""
from __future__ import annotations

import collections
import typing

import torch
import torch.nn.functional

from ._qkv import attention, attention_backward

__all__ = ["Patch", "patch", "refusal", "scaled_dot_product_attention"]

_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Attention(torch.autograd.Function):
    """q [..., n_head, q_len, d_k], k [..., n_kv_head, kv_len, d_k], v [..., n_kv_head, kv_len, d_v]; k and v have q's
    leading axes, and mask broadcasts to [..., n_head, q_len, kv_len]."""

    @staticmethod
    def forward(ctx, q, k, v, mask, options):
        out, lse = attention(q.detach(), k.detach(), v.detach(), mask=None if mask is None else mask.detach(),
                             return_lse=True, out=_empty_result(q, v), **options)
        ctx.save_for_backward(q, k, v, mask, out, lse)
        ctx.options = options
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout):
        q, k, v, mask, out, lse = ctx.saved_tensors
        want_dmask = ctx.needs_input_grad[3]
        gradients = attention_backward(q.detach(), k.detach(), v.detach(), out.detach(), lse,
                                       dout.detach().resolve_neg(),
                                       mask=None if mask is None else mask.detach(), want_dmask=want_dmask,
                                       **ctx.options)
        dmask = gradients.dmask.to(mask.dtype) if want_dmask else None
        return gradients.dq, gradients.dk, gradients.dv, dmask, None


def _empty_result(q, v):
    """An empty result tensor with q's memory layout: [batch, q_len, n_head, d] if q's heads are inside its
    positions, as after a projection, so that concatenating the heads needs no copy."""
    shape = q.shape[:-1] + v.shape[-1:]
    if q.dim() == 4 and q.stride(1) < q.stride(2):
        return q.new_empty((shape[0], shape[2], shape[1], shape[3])).transpose(1, 2)
    return q.new_empty(shape)


def refusal(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The reason why qkv does not support this call, or None if it does."""
    tensors = [query, key, value] + ([] if attn_mask is None else [attn_mask])
    for tensor in tensors:
        if type(tensor) not in _PLAIN:
            return f"a {type(tensor).__name__}, not a plain tensor"
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_nested:
            return "a tensor that is not a strided CPU tensor"
        if tensor.is_neg() or tensor._is_zerotensor():
            return "a lazily negated or zero tensor"
    if query.dtype not in _TYPES or key.dtype != query.dtype or value.dtype != query.dtype:
        return f"the dtypes {query.dtype}, {key.dtype}, {value.dtype}"
    if torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return "a function transform, tracing or compilation"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation"
    if min(t.dim() for t in tensors[:3]) < 2 or max(t.dim() for t in tensors) > 8:
        return "tensors of fewer than 2 or more than 8 axes"
    if not 0 <= dropout_p < 1:
        return f"dropout_p {dropout_p}"
    if attn_mask is not None and is_causal:
        return "attn_mask together with is_causal"
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        return f"an attn_mask of dtype {attn_mask.dtype}"
    return _refusal_of_shapes(query, key, value, attn_mask, enable_gqa)


def _refusal_of_shapes(query, key, value, attn_mask, enable_gqa):
    shapes = f"the shapes {tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
    if query.shape[-1] == 0 or query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        return shapes
    if value.shape[-1] == 0:
        return shapes
    heads, kv_heads, v_heads = (t.shape[-3] if t.dim() > 2 else 1 for t in (query, key, value))
    if kv_heads != v_heads or kv_heads == 0 or heads == 0 or heads % kv_heads:
        return shapes
    if kv_heads != heads and kv_heads != 1 and not enable_gqa:
        return "fewer key and value heads than query heads without enable_gqa"
    try:
        lead = torch.broadcast_shapes(*(t.shape[:-3] for t in (query, key, value)))
        if attn_mask is not None:
            full = lead + (heads, query.shape[-2], key.shape[-2])
            if torch.broadcast_shapes(attn_mask.shape, full) != torch.Size(full):
                return f"an attn_mask of shape {tuple(attn_mask.shape)}"
    except RuntimeError:
        return shapes
    return None


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """Replaces torch.nn.functional.scaled_dot_product_attention: same signature, semantics and gradients.

    query [..., Hq, L, E], key [..., H, S, E], value [..., H, S, Ev]; a bool attn_mask is True for visible keys, a
    floating one is added; is_causal aligns top-left, even if L and S differ; dropout is seeded from PyTorch's
    generator, but drops different elements. A query without a visible key gives 0, as in PyTorch 2.5 and later. Raises
    ValueError for calls that refusal() rejects, which patch() passes to PyTorch.
    """
    why = refusal(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if why:
        raise ValueError(f"[qkv.torch] found {why}, which qkv does not support")
    return _compute(query, key, value, attn_mask, dropout_p, is_causal, scale)


def _compute(query, key, value, attn_mask, dropout_p, is_causal, scale):
    if torch.is_autocast_enabled("cpu"):
        low = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(low), key.to(low), value.to(low)
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            attn_mask = attn_mask.to(low)
    axes = max(query.dim(), key.dim(), value.dim())
    if not query.dim() == key.dim() == value.dim() or not query.shape[:-3] == key.shape[:-3] == value.shape[:-3]:
        query, key, value = (t[(None,) * (axes - t.dim())] for t in (query, key, value))
        lead = torch.broadcast_shapes(*(t.shape[:-3] for t in (query, key, value)))
        query, key, value = (t.expand(lead + t.shape[-3:]) for t in (query, key, value))
    options: dict[str, typing.Any] = {"scale": scale, "causal": "top_left" if is_causal else None}
    if dropout_p:
        options["_dropout"] = (float(dropout_p), int(torch.randint(1 << 62, (), device="cpu")))
    needs = [t for t in (query, key, value, attn_mask) if t is not None and t.requires_grad]
    if torch.is_grad_enabled() and needs:
        return _Attention.apply(query, key, value, attn_mask, options)
    query, key, value = query.detach(), key.detach(), value.detach()
    mask = None if attn_mask is None else attn_mask.detach()
    return attention(query, key, value, mask=mask, out=_empty_result(query, value), **options)


class Patch:
    """An active patch(), with counts of calls: taken, refused, and reasons (count per reason)."""

    def __init__(self):
        self.taken = 0
        self.refused = 0
        self.reasons: collections.Counter[str] = collections.Counter()
        self._before = torch.nn.functional.scaled_dot_product_attention

        def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                         enable_gqa=False):
            why = refusal(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
            if why:
                self.refused += 1
                self.reasons[why] += 1
                return self._before(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal,
                                    scale=scale, enable_gqa=enable_gqa)
            self.taken += 1
            return _compute(query, key, value, attn_mask, dropout_p, is_causal, scale)

        self._ours = scaled_dot_product_attention
        torch.nn.functional.scaled_dot_product_attention = scaled_dot_product_attention

    def restore(self):
        """Restores PyTorch's function. Restore several patches in reverse order."""
        if torch.nn.functional.scaled_dot_product_attention is self._ours:
            torch.nn.functional.scaled_dot_product_attention = self._before

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.restore()

    def __str__(self):
        refused = ", ".join(f"{count}x {why}" for why, count in self.reasons.most_common())
        return f"taken: {self.taken}, {f'refused: {self.refused} ({refused})' if self.refused else 'none refused'}"


def patch() -> Patch:
    """Replaces torch.nn.functional.scaled_dot_product_attention with qkv's, for all code that looks it up there
    (transformers, torch.nn.MultiheadAttention). Calls that qkv does not support go to PyTorch and are counted."""
    return Patch()
