# SPDX-License-Identifier: Apache-2.0
"""qkv.attention and qkv.attention_backward: hand-computed values, the equations in float64, finite differences."""
import math
import os
import signal
import threading

import naive
import numpy as np
import pytest
import qkv
from qkv._qkv import _set_long_work

RANDOM = np.random.default_rng(7)


def drawn(*shape, dtype="f4"):
    return RANDOM.standard_normal(shape).astype(dtype)


def test_numbers_worked_by_hand():
    q = np.array([[1.0, 0.0], [0.0, 2.0]], "f4")
    k = np.array([[math.log(3), 0.0], [0.0, 0.0]], "f4")
    v = np.array([[4.0], [8.0]], "f4")
    out, lse, probs = qkv.attention(q, k, v, scale=1.0, return_lse=True, return_probs=True)
    np.testing.assert_allclose(probs, [[0.75, 0.25], [0.5, 0.5]], rtol=1e-6)
    np.testing.assert_allclose(out, [[5.0], [6.0]], rtol=1e-6)
    np.testing.assert_allclose(lse, [math.log(4), math.log(2)], rtol=1e-6)
    np.testing.assert_allclose(qkv.attention(q, k, v, scale=1.0, causal="top_left"), [[4.0], [6.0]], rtol=1e-6)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 3), (1, 2, 1, 3), (0,), (2, 0)])
@pytest.mark.parametrize("causal", [None, "top_left", "bottom_right"])
def test_any_number_of_leading_axes(lead, causal):
    q, k, v = drawn(*lead, 4, 5, 3), drawn(*lead, 2, 7, 3), drawn(*lead, 2, 7, 6)
    out, lse, probs = qkv.attention(q, k, v, causal=causal, return_lse=True, return_probs=True)
    may = naive.allowed(5, 7, causal)
    wanted = naive.attention(q, k, v, may=may)
    for found, true in zip((out, lse, probs), wanted):
        assert found.shape == true.shape and found.dtype == np.float32
        np.testing.assert_allclose(found, true, rtol=2e-5, atol=2e-6)


def test_two_axes_are_one_head():
    q, k, v = drawn(5, 3), drawn(7, 3), drawn(7, 4)
    out, lse = qkv.attention(q, k, v, return_lse=True)
    assert out.shape == (5, 4) and lse.shape == (5,)
    np.testing.assert_array_equal(out, qkv.attention(q[None, None], k[None, None], v[None, None])[0, 0])


OPTIONS = [
    dict(softcap=2.0),
    dict(scale=0.3),
    dict(causal="start", start=-2),
    dict(causal="bottom_right", window=(2, 0)),
    dict(causal="top_left", window=(None, 0)),
    dict(start=1, window=(1, 2)),
    dict(sinks=np.array([0.5, -1.0, 2.0, 0.0], "f4")),
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o))
def test_options(options):
    q, k, v = drawn(2, 4, 5, 3), drawn(2, 2, 7, 3), drawn(2, 2, 7, 6)
    may = naive.allowed(5, 7, options.get("causal"), options.get("start"),
                        tuple(-1 if side is None else side for side in options.get("window", ())) or None)
    wanted = naive.attention(q, k, v, may=may, scale=options.get("scale"), softcap=options.get("softcap", 0),
                             sinks=options.get("sinks"))
    found = qkv.attention(q, k, v, return_lse=True, return_probs=True, **options)
    for a, b in zip(found, wanted):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_alibi_and_masks():
    q, k, v = drawn(2, 4, 5, 3), drawn(2, 4, 5, 3), drawn(2, 4, 5, 3)
    slopes = np.array([0.5, 0.25, 0.125, 2.0], "f4")
    i = np.arange(5)
    bias = -slopes[:, None, None] * abs(i[None, :] - i[:, None])
    np.testing.assert_allclose(qkv.attention(q, k, v, causal="top_left", alibi=slopes),
                               naive.attention(q, k, v, may=naive.allowed(5, 5, "top_left"), bias=bias)[0], rtol=2e-5,
                               atol=2e-6)
    for shape in [(5,), (5, 5), (4, 1, 5), (2, 1, 5, 1), (1, 1, 1, 5), (2, 4, 5, 5)]:
        mask = drawn(*shape)
        np.testing.assert_allclose(qkv.attention(q, k, v, mask=mask), naive.attention(q, k, v, bias=mask)[0], rtol=2e-5,
                                   atol=2e-6)
        np.testing.assert_allclose(qkv.attention(q, k, v, mask=mask > 0),
                                   naive.attention(q, k, v, may=mask > 0)[0], rtol=2e-5, atol=2e-6)


def test_lengths_and_starts_over_leading_axes():
    q, k, v = drawn(2, 3, 2, 4, 3), drawn(2, 3, 2, 6, 3), drawn(2, 3, 2, 6, 3)
    q_lengths, kv_lengths = np.array([[4, 2, 0], [1, 3, 4]]), np.array([[6, 5, 3], [0, 1, 2]], "i4")
    may = np.array([[naive.allowed(4, 6, "bottom_right", q_length=q_lengths[a, b], kv_length=kv_lengths[a, b])
                     for b in range(3)] for a in range(2)])[:, :, None]
    wanted = naive.attention(q, k, v, may=may)[0]
    for arrays in [(q, k, v), tuple(x.swapaxes(0, 1).copy().swapaxes(0, 1) for x in (q, k, v))]:  # one call, several
        found = qkv.attention(*arrays, causal="bottom_right", q_lengths=q_lengths, kv_lengths=kv_lengths.tolist()
                              if arrays[0] is q else kv_lengths)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
    starts = np.array([[0, 1, 2], [-3, 4, 5]])
    may = np.array([[naive.allowed(4, 6, "start", starts[a, b]) for b in range(3)] for a in range(2)])[:, :, None]
    np.testing.assert_allclose(qkv.attention(q, k, v, causal="start", start=starts),
                               naive.attention(q, k, v, may=may)[0], rtol=2e-5, atol=2e-6)


def test_rows_with_nothing_to_read():
    q, k, v = drawn(1, 1, 3, 2), drawn(1, 1, 3, 2), drawn(1, 1, 3, 2)
    mask = np.array([[True, True, True], [False, False, False], [True, False, False]])
    out, lse, probs = qkv.attention(q, k, v, mask=mask, return_lse=True, return_probs=True)
    assert (out[0, 0, 1] == 0).all() and (probs[0, 0, 1] == 0).all() and lse[0, 0, 1] == -np.inf
    gradients = qkv.attention_backward(q, k, v, out, lse, np.ones_like(out), mask=mask)
    assert all(np.isfinite(g).all() for g in gradients[:3]) and (gradients.dq[0, 0, 1] == 0).all()
    with pytest.raises(ValueError, match="require_readable_key"):
        qkv.attention(q, k, v, mask=mask, require_readable_key=True)


@pytest.mark.parametrize("layout", ["one call", "many calls"])
def test_gradients_by_differences(layout):
    lead = (2, 2)
    arrays = {"q": drawn(*lead, 2, 3, 2, dtype="f8"), "k": drawn(*lead, 1, 4, 2, dtype="f8"),
              "v": drawn(*lead, 1, 4, 2, dtype="f8"), "mask": drawn(1, 2, 1, 3, 1, dtype="f8"),
              "sinks": drawn(2, dtype="f8")}
    if layout == "many calls":
        arrays = {n: a.swapaxes(0, 1).copy().swapaxes(0, 1) if n in "qkv" else a for n, a in arrays.items()}
    dout = drawn(*lead, 2, 3, 2, dtype="f8")
    options = dict(causal="bottom_right", softcap=3.0)

    def loss(**changed):
        a = {**arrays, **changed}
        return float((qkv.attention(a["q"], a["k"], a["v"], mask=a["mask"], sinks=a["sinks"], **options) * dout).sum())

    out, lse = qkv.attention(arrays["q"], arrays["k"], arrays["v"], mask=arrays["mask"], sinks=arrays["sinks"],
                             return_lse=True, **options)
    gradients = qkv.attention_backward(arrays["q"], arrays["k"], arrays["v"], out, lse, dout, mask=arrays["mask"],
                                       sinks=arrays["sinks"], want_dmask=True, **options)
    for name, gradient in zip(["q", "k", "v", "mask", "sinks"], gradients):
        assert gradient.shape == arrays[name].shape
        for at in np.ndindex(arrays[name].shape):
            step = np.zeros_like(arrays[name])
            step[at] = 1e-5
            slope = (loss(**{name: arrays[name] + step}) - loss(**{name: arrays[name] - step})) / 2e-5
            assert gradient[at] == pytest.approx(slope, rel=2e-6, abs=2e-8), (name, at)


def test_gradients_that_are_not_wanted():
    q = drawn(1, 2, 3, 4)
    out, lse = qkv.attention(q, q, q, return_lse=True)
    gradients = qkv.attention_backward(q, q, q, out, lse, out)
    assert gradients.dmask is None and gradients.dsinks is None and gradients.dq.shape == q.shape
    with pytest.raises(ValueError, match="floating mask"):
        qkv.attention_backward(q, q, q, out, lse, out, want_dmask=True)


def test_threads_change_no_bit():
    q, k, v = drawn(2, 3, 37, 8), drawn(2, 3, 41, 8), drawn(2, 3, 41, 8)
    before = qkv.num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            qkv.set_num_threads(threads)
            results.append(qkv.attention(q, k, v, causal="bottom_right"))
    finally:
        qkv.set_num_threads(before)
    assert all((r == results[0]).all() for r in results)


CUT_OPTIONS = [
    {}, dict(causal="bottom_right", q_lengths=[5, 3, 0], kv_lengths=[7, 2, 4]), dict(causal="start", start=[0, -2, 4]),
    dict(causal="start", start=1, window=(2, 0)), dict(mask=drawn(3, 1, 5, 7)), dict(mask=drawn(4, 5, 7) > 0),
    dict(mask=drawn(3, 4, 1, 7)), dict(start=0, alibi=drawn(4)), dict(sinks=drawn(8)[::2]),
]


@pytest.mark.parametrize("options", CUT_OPTIONS, ids=lambda o: "-".join(o) or "plain")
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_long_calls_are_cut_and_change_no_bit(options, kv_heads):
    q, k, v, dout = drawn(3, 4, 5, 8), drawn(3, kv_heads, 7, 8), drawn(3, kv_heads, 7, 6), drawn(3, 4, 5, 6)
    results = []
    for long_work in (1e11, 0.0):
        before = _set_long_work(long_work)
        try:
            out, lse, probs = qkv.attention(q, k, v, return_lse=True, return_probs=True, **options)
            results.append((out, lse, probs) + qkv.attention_backward(q, k, v, out, lse, dout, **options)[:3])
        finally:
            _set_long_work(before)
    for whole, cut in zip(*results):
        assert (whole == cut).all()


def test_what_does_not_fit_is_found_before_a_call_is_cut():
    q, k = drawn(3, 4, 5, 8), drawn(3, 2, 7, 8)
    before = _set_long_work(0.0)
    try:
        for wrong in (dict(mask=drawn(3, 5, 7)), dict(mask=drawn(2, 1, 5, 7)), dict(q_lengths=[1, 2]), dict(sinks=drawn(3)),
                      dict(alibi=drawn(3), start=0), dict(start=[1, 2], causal="start"), dict(kv_lengths=[9, 1, 1])):
            with pytest.raises(ValueError):
                qkv.attention(q, k, k, **wrong)
        with pytest.raises(ValueError):
            qkv.attention(q, k, drawn(3, 1, 7, 8))
        with pytest.raises(ValueError):
            qkv.attention(q, drawn(3, 3, 7, 8), drawn(3, 3, 7, 8))
    finally:
        _set_long_work(before)


def test_ctrl_c_ends_a_long_call():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    x = np.broadcast_to(drawn(1, 2, 256, 64), (20000, 2, 256, 64))
    out = np.full((20000, 2, 256, 1), np.nan, "f4")
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    before = _set_long_work(0.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            qkv.attention(x, x, x[..., :1], out=out)  # takes some seconds
            timer.join()
    finally:
        _set_long_work(before)
    assert np.isnan(out[-1]).all()  # the call ended before this row


def test_is_causal_is_pytorchs_keyword():
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 5, 4))
    np.testing.assert_array_equal(qkv.attention(q, k, v, is_causal=True), qkv.attention(q, k, v, causal="top_left"))
    np.testing.assert_array_equal(qkv.attention(q, k, v, is_causal=False), qkv.attention(q, k, v))
    with pytest.raises(ValueError, match="causal or is_causal; found both"):
        qkv.attention(q, k, v, is_causal=True, causal="top_left")
    with pytest.raises(ValueError, match="is_causal must be True or False"):
        qkv.attention(q, k, v, is_causal="yes")
