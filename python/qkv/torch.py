# SPDX-License-Identifier: Apache-2.0
"""PyTorch's attention, computed by qkv: the same function with gradients, and a switch that makes existing code use it.

    import qkv.torch
    counts = qkv.torch.patch()      # torch.nn.functional.scaled_dot_product_attention is qkv's now
    train(model)
    print(counts)                   # 144 calls taken, none refused
    counts.restore()

Tensors are read and written where they lie, also strided ones.
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
    """q [..., n_head, q_len, d_k], k [..., n_kv_head, kv_len, d_k], v [..., n_kv_head, kv_len, d_v]; q's leading axes
    are everyone's, and mask broadcasts to [..., n_head, q_len, kv_len]."""

    @staticmethod
    def forward(ctx, q, k, v, mask, options):
        out, lse = attention(q.detach(), k.detach(), v.detach(), mask=None if mask is None else mask.detach(),
                             return_lse=True, out=_room(q, v), **options)
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


def _room(q, v):
    """A tensor for the result whose memory is laid out as q's: [batch, q_len, n_head, d] if q's heads lie inside its
    positions, as they do after a projection, so that joining the heads copies nothing."""
    shape = q.shape[:-1] + v.shape[-1:]
    if q.dim() == 4 and q.stride(1) < q.stride(2):
        return q.new_empty((shape[0], shape[2], shape[1], shape[3])).transpose(1, 2)
    return q.new_empty(shape)


def refusal(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Why qkv does not compute this call, in words, or None if it does."""
    tensors = [query, key, value] + ([] if attn_mask is None else [attn_mask])
    for tensor in tensors:
        if type(tensor) not in _PLAIN:
            return f"a {type(tensor).__name__} is not a plain tensor"
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_nested:
            return "a tensor is not a strided one in this processor's memory"
        if tensor.is_neg() or tensor._is_zerotensor():
            return "a tensor whose memory does not hold its values"
    if query.dtype not in _TYPES or key.dtype != query.dtype or value.dtype != query.dtype:
        return f"the types {query.dtype}, {key.dtype}, {value.dtype}"
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
        return f"an attn_mask of {attn_mask.dtype}"
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
        return "fewer heads of key and value than of query without enable_gqa"
    try:
        lead = torch.broadcast_shapes(*(t.shape[:-3] for t in (query, key, value)))
        if attn_mask is not None:
            full = lead + (heads, query.shape[-2], key.shape[-2])
            if torch.broadcast_shapes(attn_mask.shape, full) != torch.Size(full):
                return f"an attn_mask of the shape {tuple(attn_mask.shape)}"
    except RuntimeError:
        return shapes
    return None


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention: its signature, rules and gradients.

    query [..., Hq, L, E], key [..., H, S, E], value [..., H, S, Ev]; a bool attn_mask is True where reading is allowed,
    a floating one is added; is_causal aligns top-left, also where L and S differ; dropout draws from PyTorch's
    generator, in a way of its own. A row with nothing to read gives 0, as in PyTorch from 2.5 on. ValueError for what
    refusal() names, which patch() leaves to PyTorch.
    """
    why = refusal(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if why:
        raise ValueError(f"[qkv.torch] found {why}, which qkv does not compute")
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
    return attention(query, key, value, mask=mask, out=_room(query, value), **options)


class Patch:
    """What patch() changed, and what came of it: taken, refused and reasons (how often for which one)."""

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
        """Gives PyTorch its function back. Patches are to be taken back in the opposite order."""
        if torch.nn.functional.scaled_dot_product_attention is self._ours:
            torch.nn.functional.scaled_dot_product_attention = self._before

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.restore()

    def __str__(self):
        refused = ", ".join(f"{count} times {why}" for why, count in self.reasons.most_common())
        return f"{self.taken} calls taken, {f'{self.refused} refused: {refused}' if self.refused else 'none refused'}"


def patch() -> Patch:
    """Makes torch.nn.functional.scaled_dot_product_attention qkv's, for all code that looks it up there (transformers,
    torch.nn.MultiheadAttention). What qkv does not compute, PyTorch does, and it is counted."""
    return Patch()
