# SPDX-License-Identifier: Apache-2.0
"""Any arguments give a result, ValueError or TypeError: never a crash or another error."""
import os

import numpy as np
import pytest
import qkv

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
EXAMPLES = int(os.environ.get("QKV_TEST_EXAMPLES", "80"))

DTYPES = ["f4", "f4", "f4", "f8", "f2", "i8", "i4", "u1", "?", "c8", ">f4", "U3", "O", "M8[s]", "V7"]
SIZES = st.sampled_from([0, 1, 1, 2, 3, 4])
ODD = st.one_of(st.none(), st.integers(-5, 5), st.floats(), st.text(max_size=3), st.just(object()), st.just(1 << 80),
                st.lists(st.integers(-9, 9), max_size=3), st.tuples(st.integers(-3, 9), st.integers(-3, 9)))


@st.composite
def arrays(draw, likely=None):
    shape = likely if likely and draw(st.integers(0, 9)) else tuple(draw(st.lists(SIZES, max_size=9)))
    dtype = draw(st.sampled_from(DTYPES)) if draw(st.integers(0, 5)) == 0 else "f4"
    array = np.zeros(shape, dtype)
    if array.dtype.kind == "f" and array.size:
        array[...] = draw(st.sampled_from([0.5, -1.0, np.nan, np.inf, 6e4]))
    change = draw(st.integers(0, 7))
    if change == 0 and array.ndim:
        array = array[::-1]
    elif change == 1 and array.ndim:
        array = array.swapaxes(0, -1)
    elif change == 2:
        array = np.broadcast_to(array, shape)
    elif change == 3 and dtype == "f4" and shape and array.size:  # not aligned to its elements
        bytes_ = np.zeros(array.nbytes + 1, "u1")
        array = bytes_[1:].view("f4").reshape(shape)
    return array


@st.composite
def calls(draw):
    lead = tuple(draw(st.lists(SIZES, max_size=3)))
    group, heads, q_len, kv_len, d_k, d_v = (draw(SIZES) for _ in range(6))
    q = draw(arrays(lead + (heads * group, q_len, d_k)))
    k, v = draw(arrays(lead + (heads, kv_len, d_k))), draw(arrays(lead + (heads, kv_len, d_v)))
    options = {}
    for name, value in {
            "causal": st.sampled_from([None, "top_left", "bottom_right", "start", "up", 3]),
            "start": st.one_of(ODD, st.integers(-(1 << 62), 1 << 62)), "scale": ODD,
            "mask": st.one_of(ODD, arrays((q_len, kv_len)), st.just(np.ones((q_len, kv_len), bool))),
            "softcap": st.one_of(st.floats(), st.integers(0, 4)), "window": ODD,
            "alibi": st.one_of(ODD, arrays((heads * group,))), "sinks": st.one_of(ODD, arrays((heads * group,))),
            "q_lengths": ODD, "kv_lengths": ODD, "require_readable_key": st.booleans(),
            "return_lse": st.booleans(), "return_probs": st.booleans(),
            "out": st.one_of(ODD, arrays(lead + (heads * group, q_len, d_v)))}.items():
        if draw(st.integers(0, 5)) == 0:
            options[name] = draw(value)
    return q, k, v, options


@hypothesis.settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
                     suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(calls())
def test_no_arguments_crash(call):
    q, k, v, options = call
    try:
        out = qkv.attention(q, k, v, **options)
    except (ValueError, TypeError, OverflowError):
        return
    first = out[0] if isinstance(out, tuple) else out
    assert first.shape == q.shape[:-1] + v.shape[-1:]
    backward = {n: o for n, o in options.items() if n not in ("out", "return_lse", "return_probs")}
    result, lse = qkv.attention(q, k, v, return_lse=True, **backward)
    gradients = qkv.attention_backward(q, k, v, result, lse, result, **backward)
    assert gradients.dq.shape == q.shape and gradients.dv.shape == v.shape


@hypothesis.settings(max_examples=EXAMPLES // 2, deadline=None, derandomize=True, database=None,
                     suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.data())
def test_no_arguments_crash_backward(data):
    shape = (1, 2, 3, 4)
    given = [data.draw(arrays(shape[:-1] if i == 4 else shape)) for i in range(6)]
    try:
        qkv.attention_backward(*given, want_dmask=data.draw(st.booleans()), mask=data.draw(st.one_of(ODD, arrays((3, 3)))))
    except (ValueError, TypeError, OverflowError):
        pass


@pytest.mark.parametrize("options,message", [
    (dict(causal="\ud800"), "surrogates not allowed"),
    (dict(_dropout=(0.5, -1)), "dropout must be .p, seed.; found .0.5, -1."),
    (dict(causal="sideways"), "causal must be None, 'top_left', 'bottom_right' or 'start'; found 'sideways'"),
    (dict(window=(1, 0)), "a window needs an alignment"),
    (dict(alibi=np.ones(2, "f4")), "alibi_slopes needs an alignment"),
    (dict(start=3), "start is used by"),
    (dict(causal="top_left", start=3), "start is only used with"),
    (dict(causal="start"), "start must have one position"),
    (dict(window=(1, 2, 3), causal="top_left"), "window must be"),
    (dict(kv_lengths=[1, 2]), "kv_lengths must have one length per sequence"),
    (dict(q_lengths=[9]), "q_lengths must be from 0 to 3"),
    (dict(q_lengths=[1.5]), "q_lengths must be 32- or 64-bit integers"),
    (dict(scale=float("nan")), "scale must be finite"),
    (dict(softcap=-1), "softcap must be"),
    (dict(mask=np.ones((4, 3))), "mask must broadcast"),
    (dict(mask=np.ones((3, 3), "i4")), "mask must be bool"),
])
def test_messages_say_what_was_expected(options, message):
    q = np.zeros((1, 2, 3, 4), "f4")
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        qkv.attention(q, q, q, **options)


def test_what_is_no_array():
    q = np.zeros((1, 2, 3, 4), "f4")
    for wrong in (None, 3, "text", object(), {}, qkv):
        with pytest.raises(TypeError):
            qkv.attention(wrong, q, q)
    with pytest.raises(TypeError):
        qkv.attention(q, q, q, nonsense=1)
