# SPDX-License-Identifier: Apache-2.0
"""JAX arrays as inputs and results, zero-copy."""
import numpy as np
import pytest
import qkv
from qkv._qkv import _described

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("dtype,name", [("float32", "f32"), ("bfloat16", "bf16"), ("float16", "f16"), ("int32", "i32")])
def test_read_where_they_lie(dtype, name):
    x = jnp.zeros((3, 4, 5), dtype)
    address, found, shape, strides = _described(x)
    assert (address, found, shape, strides) == (x.unsafe_buffer_pointer(), name, (3, 4, 5), (20, 5, 1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_results_are_jaxs(dtype):
    x = RANDOM.standard_normal((2, 3, 7, 8)).astype("f4")
    q = jnp.asarray(x).astype(dtype)
    out, lse, probs = qkv.attention(q, q, q, causal="top_left", return_lse=True, return_probs=True)
    assert all(isinstance(a, jax.Array) for a in (out, lse, probs)) and out.dtype == q.dtype
    wanted = jax.nn.dot_product_attention(*(jnp.asarray(q, "float32").swapaxes(1, 2),) * 3, is_causal=True).swapaxes(1, 2)
    np.testing.assert_allclose(np.asarray(out, "f4"), wanted, atol=2e-5 if dtype == "float32" else 2e-2)
    assert float((out * 2)[0, 0, 0, 0]) == 2 * float(out[0, 0, 0, 0])  # usable in further computation


def test_gradients_are_jaxs_own():
    q, k, v, dout = (jnp.asarray(RANDOM.standard_normal((1, 2, 5, 4)), "float32") for _ in range(4))
    out, lse = qkv.attention(q, k, v, return_lse=True)
    found = qkv.attention_backward(q, k, v, out, lse, dout)

    def loss(q, k, v):
        probs = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 2.0)
        return (probs @ v * dout).sum()

    for a, b in zip(found[:3], jax.grad(loss, (0, 1, 2))(q, k, v)):
        assert isinstance(a, jax.Array)
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_bf16_of_numpy():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = RANDOM.standard_normal((2, 3, 7, 8)).astype(ml_dtypes.bfloat16)
    for view in (x, x[:, ::-1], x.swapaxes(1, 2)):
        address, dtype, shape, strides = _described(view)
        assert (address, dtype, shape) == (view.__array_interface__["data"][0], "bf16", view.shape)
        assert strides == tuple(s // 2 for s in view.strides)
    out = qkv.attention(x, x, x)
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(out.view("u2"), np.asarray(qkv.attention(*(jnp.asarray(x),) * 3)).view("u2"))
    buffer = np.zeros_like(x)
    assert qkv.attention(x, x, x, out=buffer) is buffer and (buffer == out).all()
