# SPDX-License-Identifier: Apache-2.0
"""Zero-copy inputs and results, by the buffer protocol and DLPack, with any strides."""
import array
import gc
import sys
import threading

import numpy as np
import pytest
import qkv
from qkv._qkv import _described

RANDOM = np.random.default_rng(11)


def drawn(*shape, dtype="f4"):
    return RANDOM.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[:, ::2], lambda x: x[::-1], lambda x: x.T,
                                  lambda x: np.broadcast_to(x[:1], x.shape), lambda x: x[1:, 3]])
@pytest.mark.parametrize("dtype,name", [("f4", "f32"), ("f8", "f64"), ("f2", "f16"), ("i8", "i64"), ("i4", "i32"),
                                        ("?", "boolean")])
def test_numpy_is_read_where_it_lies(view, dtype, name):
    seen = view(np.zeros((4, 6), dtype))
    address, found, shape, strides = _described(seen)
    assert address == seen.__array_interface__["data"][0]
    assert found in (name, "bool") and shape == seen.shape
    assert strides == tuple(s // seen.itemsize for s in seen.strides)


def test_buffers_other_than_numpys():
    memory = array.array("f", range(12))
    address, dtype, shape, strides = _described(memory)
    assert (address, dtype, shape, strides) == (memory.buffer_info()[0], "f32", (12,), (1,))
    view = memoryview(memory).cast("B").cast("f", (3, 4))
    assert _described(view)[0] == address and _described(view)[2] == (3, 4)
    found = qkv.attention(view, view, view)
    x = np.arange(12, dtype="f4").reshape(3, 4)
    assert isinstance(found, np.ndarray) and (found == qkv.attention(x, x, x)).all()


class Exporter:
    """Exports only DLPack."""

    def __init__(self, held):
        self.held = held

    def __dlpack__(self, **options):
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.held.__dlpack_device__()


def test_dlpack_alone():
    x = drawn(2, 3, 4)[:, ::-1]
    assert _described(Exporter(x))[0] == x.__array_interface__["data"][0]
    assert (qkv.attention(Exporter(x), Exporter(x), Exporter(x)) == qkv.attention(x, x, x)).all()


def test_read_only_arrays_and_empty_ones():
    x = drawn(2, 3, 4)
    x.flags.writeable = False
    assert qkv.attention(x, x, x).shape == x.shape
    with pytest.raises(ValueError, match="writable"):
        qkv.attention(x.copy(), x, x, out=x)
    nothing = np.zeros((0, 2, 3, 4), "f4")
    assert qkv.attention(nothing, nothing, nothing).shape == (0, 2, 3, 4)
    q, k = drawn(1, 2, 3, 4), np.zeros((1, 2, 0, 4), "f4")
    assert (qkv.attention(q, k, k) == 0).all()


def test_results_go_where_they_are_told():
    q = drawn(2, 2, 3, 4)
    buffer = np.full((2, 3, 2, 8), 7, "f4")
    out = buffer.swapaxes(1, 2)[..., ::2]  # [2, 2, 3, 4], strided
    found = qkv.attention(q, q, q, out=out)
    assert found is out and (out == qkv.attention(q, q, q)).all() and (buffer[..., 1::2] == 7).all()
    for refused in (q, np.zeros((2, 2, 3, 5), "f4"), np.zeros((2, 3, 4), "f4"), np.zeros((2, 2, 3, 4), "i4"),
                    np.broadcast_to(np.zeros(4, "f4"), q.shape)):
        with pytest.raises(ValueError):
            qkv.attention(q, q, q, out=refused)


def test_layout_changes_no_bit():
    q, k, v = drawn(2, 5, 3, 4), drawn(2, 7, 3, 4), drawn(2, 7, 3, 6)  # [batch, seq, heads, d]
    views = [x.swapaxes(1, 2) for x in (q, k, v)]
    assert (qkv.attention(*views) == qkv.attention(*(x.copy() for x in views))).all()


def test_memory_is_given_back():
    x = drawn(1, 2, 64, 32)
    before = sys.getrefcount(x)
    for _ in range(100):
        out, lse = qkv.attention(x, x, x, return_lse=True)
        qkv.attention_backward(x, x, x, out, lse, out)
        with pytest.raises(ValueError):
            qkv.attention(x, x, x, causal="sideways")
    del out, lse
    gc.collect()
    assert sys.getrefcount(x) == before


def test_threads_of_python_may_call_at_once():
    x = [drawn(1, 2, 40 + i, 16) for i in range(4)]
    alone = [qkv.attention(y, y, y, causal="top_left") for y in x]
    wrong = []

    def work(i):
        for _ in range(20):
            if not (qkv.attention(x[i], x[i], x[i], causal="top_left") == alone[i]).all():
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_gil_is_released():
    x = drawn(1, 4, 1500, 64)
    beats, done = [], threading.Event()

    def beat():
        while not done.is_set():
            beats.append(1)
            done.wait(0.0005)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        while not beats:
            pass
        before = len(beats)
        for _ in range(5):
            qkv.attention(x, x, x)
        assert len(beats) > before + 2  # with the GIL held, it would only run between two calls
    finally:
        done.set()
        thread.join()
