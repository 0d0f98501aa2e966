# SPDX-License-Identifier: Apache-2.0
"""PyTorch semantics: values and gradients over a grid of types, masks, alignments and layouts, against PyTorch."""
import itertools

import numpy as np
import pytest
import qkv
from qkv._qkv import _described

torch = pytest.importorskip("torch")
import qkv.torch  # noqa: E402

F = torch.nn.functional
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def drawn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64).to(dtype)


MASKS = {
    "none": lambda lead, heads, q_len, kv_len: None,
    "bool": lambda lead, heads, q_len, kv_len: drawn(q_len, kv_len, seed=3) > -0.5,
    "bool per sequence": lambda lead, heads, q_len, kv_len: drawn(*lead, 1, q_len, kv_len, seed=4) > -0.5,
    "bool row of nothing": lambda lead, heads, q_len, kv_len: torch.arange(q_len)[:, None].expand(q_len, kv_len) != 1,
    "bool keys": lambda lead, heads, q_len, kv_len: drawn(1, kv_len, seed=5) > -0.5,
    "added": lambda lead, heads, q_len, kv_len: drawn(q_len, kv_len, seed=6),
    "added per head": lambda lead, heads, q_len, kv_len: drawn(heads, q_len, kv_len, seed=7),
    "added with -inf": lambda lead, heads, q_len, kv_len: drawn(*lead, heads, q_len, kv_len, seed=8).masked_fill(
        drawn(q_len, kv_len, seed=9) < -0.3, -np.inf),
}
LAYOUTS = {
    "contiguous": lambda *shape, **kind: drawn(*shape, **kind),
    "seq before heads": lambda *shape, **kind: drawn(*shape[:-3], shape[-2], shape[-3], shape[-1], **kind).transpose(-2, -3),
    "every second": lambda *shape, **kind: drawn(*shape[:-1], 2 * shape[-1], **kind)[..., ::2],
}


def check(query, key, value, dtype, **options):
    """Compares values and gradients of both, each with its own leaves; PyTorch's in f64 for bf16 and f16."""
    wide = torch.float64 if dtype in (torch.bfloat16, torch.float16) else dtype
    results = []
    for compute, cast in [(qkv.torch.scaled_dot_product_attention, dtype), (F.scaled_dot_product_attention, wide)]:
        leaves = [t.detach().to(cast).requires_grad_() for t in (query, key, value)]
        mine = dict(options)
        mask = options.get("attn_mask")
        if mask is not None and mask.dtype != torch.bool:
            mine["attn_mask"] = mask.detach().to(cast).requires_grad_()
            leaves.append(mine["attn_mask"])
        out = compute(*leaves[:3], **mine)
        assert out.dtype == cast
        weights = drawn(*out.shape, dtype=torch.float64, seed=99).to(cast)
        results.append([out.detach()] + list(torch.autograd.grad((out * weights).sum(), leaves)))
    for found, wanted in zip(*results):
        assert found.shape == wanted.shape
        wanted = torch.nan_to_num(wanted.double(), nan=0.0)
        error = (found.double() - wanted).abs().max() / max(1.0, wanted.abs().max())
        assert error <= TOLERANCE[dtype], float(error)


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("mask", list(MASKS))
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("q_len,kv_len", [(5, 5), (3, 9), (9, 3)])
def test_the_rules(dtype, mask, layout, q_len, kv_len):
    for lead, heads, d_v, causal in [((2,), 3, 8, False), ((2,), 3, 8, True), ((2, 2), 2, 5, False), ((), 2, 8, True)]:
        if causal and mask != "none":
            continue
        make = LAYOUTS[layout]
        query = make(*lead, heads, q_len, 8, dtype=dtype)
        key, value = make(*lead, heads, kv_len, 8, dtype=dtype, seed=1), make(*lead, heads, kv_len, d_v, dtype=dtype, seed=2)
        attn_mask = MASKS[mask](lead, heads, q_len, kv_len)
        check(query, key, value, dtype, attn_mask=attn_mask, is_causal=causal)


@pytest.mark.parametrize("heads,kv_heads", [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("causal,scale", list(itertools.product([False, True], [None, 0.7])))
def test_grouped_queries(heads, kv_heads, causal, scale):
    check(drawn(2, heads, 5, 8), drawn(2, kv_heads, 7, 8), drawn(2, kv_heads, 7, 8), torch.float32, enable_gqa=True,
          is_causal=causal, scale=scale)


def test_leading_axes_broadcast_as_in_pytorch():
    for shapes in [((2, 1, 5, 8), (1, 1, 7, 8), (2, 1, 7, 4)), ((3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4)), ((5, 8), (7, 8), (7, 4))]:
        check(*(drawn(*shape) for shape in shapes), torch.float32)


def test_memory_is_shared():
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool):
        tensor = torch.zeros(4, 6, 5).to(dtype)
        for view in (tensor, tensor.transpose(0, 1), tensor[1:, ::2], tensor.expand(3, 4, 6, 5)):
            address, _, shape, strides = _described(view)
            assert (address, shape, strides) == (view.data_ptr(), tuple(view.shape), view.stride())
    q = torch.randn(1, 2, 3, 4)
    out = torch.empty(1, 3, 2, 4).transpose(1, 2)
    assert qkv.attention(q, q, q, out=out) is out
    assert isinstance(qkv.attention(q, q, q), torch.Tensor)
    assert qkv.attention(q.bfloat16(), q.bfloat16(), q.bfloat16()).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="gradient"):
        qkv.attention(q.requires_grad_(), q, q)


def test_gradient_by_pytorchs_own_check():
    leaves = [drawn(1, 2, 3, 4, dtype=torch.float64, seed=i).requires_grad_() for i in range(3)]
    mask = drawn(2, 3, 3, dtype=torch.float64, seed=5).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda q, k, v, m: qkv.torch.scaled_dot_product_attention(q, k, v, attn_mask=m), (*leaves, mask))


def test_dropout():
    q, ones = drawn(1, 1, 64, 8), torch.eye(64)[None, None]
    torch.manual_seed(5)
    a = qkv.torch.scaled_dot_product_attention(q, q, ones, dropout_p=0.25)
    torch.manual_seed(5)
    assert torch.equal(a, qkv.torch.scaled_dot_product_attention(q, q, ones, dropout_p=0.25))
    assert not torch.equal(a, qkv.torch.scaled_dot_product_attention(q, q, ones, dropout_p=0.25))
    kept = a != 0
    assert 0.2 < 1 - kept.float().mean() < 0.3
    probs = F.scaled_dot_product_attention(q, q, ones)
    torch.testing.assert_close(a[kept], probs[kept] / 0.75)


def test_autocast_computes_in_its_type():
    q = drawn(1, 2, 5, 8).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = qkv.torch.scaled_dot_product_attention(q, q, q)
        assert out.dtype == F.scaled_dot_product_attention(q, q, q).dtype == torch.bfloat16
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32


def test_patch_counts_what_it_takes_and_refuses():
    before = F.scaled_dot_product_attention
    q = drawn(1, 2, 3, 4)
    with qkv.torch.patch() as counts:
        wanted = before(q, q, q, is_causal=True)
        torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q, is_causal=True), wanted)
        assert (counts.taken, counts.refused) == (1, 0) and str(counts) == "taken: 1, none refused"
        F.scaled_dot_product_attention(q, q, q, dropout_p=1.0)
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(q, q.double(), q)
        assert (counts.taken, counts.refused) == (1, 2)
        assert "dropout_p 1.0" in counts.reasons
    assert F.scaled_dot_product_attention is before
    with pytest.raises(ValueError, match="dropout_p 1.0"):
        qkv.torch.scaled_dot_product_attention(q, q, q, dropout_p=1.0)


@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention_goes_through_it(bias):
    torch.manual_seed(1)
    layer = torch.nn.MultiheadAttention(32, 4, bias=bias, batch_first=True)
    x = drawn(2, 7, 32)
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 5:] = True
    causal = torch.nn.Transformer.generate_square_subsequent_mask(7)
    layer.train()
    for options in [{}, {"key_padding_mask": padding}, {"attn_mask": causal, "is_causal": True}]:
        wanted = layer(x, x, x, need_weights=False, **options)[0]
        with qkv.torch.patch() as counts:
            found = layer(x, x, x, need_weights=False, **options)[0]
        assert counts.taken == 1 and counts.refused == 0
        torch.testing.assert_close(found, wanted, atol=2e-6, rtol=2e-5)


def test_the_state_of_multi_head_attention_loads():
    """torch.nn.MultiheadAttention's parameters, by name and layout, with only qkv.attention."""
    torch.manual_seed(2)
    layer = torch.nn.MultiheadAttention(24, 3, batch_first=True)
    state = {name: parameter.numpy() for name, parameter in layer.state_dict().items()}
    x = np.random.default_rng(4).standard_normal((2, 6, 24)).astype("f4")
    projected = x @ state["in_proj_weight"].T + state["in_proj_bias"]
    q, k, v = (part.reshape(2, 6, 3, 8).swapaxes(1, 2) for part in np.split(projected, 3, axis=-1))
    read = qkv.attention(q, k, v).swapaxes(1, 2).reshape(2, 6, 24)
    found = read @ state["out_proj.weight"].T + state["out_proj.bias"]
    wanted = layer(*(torch.from_numpy(x),) * 3, need_weights=False)[0].detach().numpy()
    np.testing.assert_allclose(found, wanted, atol=2e-6, rtol=2e-5)


def test_tensors_whose_memory_does_not_hold_their_values():
    """With the negative bit, memory contains the negated values; reading it directly would give the wrong sign."""
    q = torch.view_as_complex(torch.randn(1, 2, 5, 4, 2, generator=torch.Generator().manual_seed(1))).conj().imag
    assert q.is_neg() and q.dtype == torch.float32
    with pytest.raises(ValueError, match="negative bit"):
        qkv.attention(q, q, q)
    wanted = F.scaled_dot_product_attention(q, q, q)
    with qkv.torch.patch() as counts:
        torch.testing.assert_close(torch.nn.functional.scaled_dot_product_attention(q, q, q), wanted)
    assert (counts.taken, counts.refused) == (0, 1)
    x = q.resolve_neg().clone().requires_grad_()  # the same for the incoming gradient
    grads = [torch.autograd.grad(f(x, x, x), x, q)[0] for f in (F.scaled_dot_product_attention, qkv.torch.scaled_dot_product_attention)]
    torch.testing.assert_close(grads[1], grads[0], atol=2e-6, rtol=2e-5)


def test_what_records_a_call_is_left_to_pytorch():
    """Otherwise a trace would contain its example's values, and a tangent would be lost."""
    def attend(x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x) + 0

    a, b = (torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    with qkv.torch.patch() as counts:
        traced = torch.jit.trace(attend, (a,), check_trace=False)
    torch.testing.assert_close(traced(b), attend(b))
    assert counts.refused > 0 and counts.taken == 0
    with qkv.torch.patch() as counts, torch.autograd.forward_ad.dual_level(), \
            torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        tangent = torch.autograd.forward_ad.unpack_dual(attend(torch.autograd.forward_ad.make_dual(a, b))).tangent
    assert tangent is not None and counts.refused == 1


def test_the_default_device_is_nobodys_matter():
    x = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(1))
    wanted = F.scaled_dot_product_attention(x, x, x)
    with torch.device("meta"):
        assert qkv.attention(x, x, x).device.type == "cpu"
        found = qkv.torch.scaled_dot_product_attention(x, x, x)
        dropped = qkv.torch.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    torch.testing.assert_close(found, wanted)
    assert dropped.device.type == "cpu"


def test_pytorchs_number_of_threads_stays(tmp_path):
    before = torch.get_num_threads()
    try:
        for threads in (3, 1):
            torch.set_num_threads(threads)
            qkv.set_num_threads(2)
            model = qkv.Model(n_layer=1, n_head=2, d_model=64, ctx_len=32, seed=1)
            model.loss_and_gradients(np.arange(32))
            model.generate(np.arange(4), 4)
            assert torch.get_num_threads() == threads
    finally:
        qkv.set_num_threads(0)
        torch.set_num_threads(before)


def test_gpt2_of_transformers_trains_with_it():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=64, n_positions=64, vocab_size=512, attn_pdrop=0.0,
                                     resid_pdrop=0.0, embd_pdrop=0.0)
    tokens = torch.randint(0, 512, (2, 64), generator=torch.Generator().manual_seed(1))
    padding = torch.ones(2, 64, dtype=torch.long)
    padding[1, 50:] = 0
    losses = {}
    for side in ("torch", "qkv"):
        torch.manual_seed(3)
        model = transformers.GPT2LMHeadModel(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses[side] = []
        with (qkv.torch.patch() if side == "qkv" else torch.enable_grad()) as counts:
            for step in range(8):
                loss = model(tokens, labels=tokens, **({"attention_mask": padding} if step % 2 else {})).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses[side].append(float(loss.detach()))
        if side == "qkv":
            assert counts.taken == 16 and counts.refused == 0, str(counts)
    np.testing.assert_allclose(losses["qkv"], losses["torch"], atol=1e-4)
    assert losses["qkv"][-1] < losses["qkv"][0] - 0.5
