# SPDX-License-Identifier: Apache-2.0
"""Forking, pickling, and deleted files."""
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import qkv

SIZES = dict(n_layer=2, n_head=2, d_model=64, ctx_len=64)

FORK = """
import os, signal, sys
import numpy as np, qkv
x = np.random.default_rng(0).standard_normal((2, 8, 96, 32)).astype("f4")
tokens = np.arange(128).reshape(2, 64)
def compute():
    model = qkv.Model(seed=1, n_layer=2, n_head=2, d_model=64, ctx_len=64)
    return qkv.attention(x, x, x, causal="top_left").tobytes(), model.loss(tokens), model.generate(tokens[0, :9], 9).tolist()
qkv.set_num_threads(3)
before = compute() if sys.argv[1] == "used" else None
child = os.fork()
if child == 0:
    signal.alarm(60)  # it must not wait for threads that were not forked
    same = before is None or compute() == before
    threads = qkv.num_threads()
    try:
        qkv.set_num_threads(2)
        threads += 10 * qkv.num_threads()
    except ValueError as error:
        threads += 100 * ("fork" in str(error))
    compute()
    os._exit(threads if same else 255)
status = os.waitpid(child, 0)[1]
assert before is None or compute() == before
print("signal" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
"""


@pytest.mark.parametrize("parent,found", [("used", "101"), ("fresh", "23")])
def test_a_fork_computes_the_same(parent, found):
    """One thread, with an error for more, if the parent used several; otherwise no limit."""
    ran = subprocess.run([sys.executable, "-c", FORK, parent], capture_output=True, text=True, timeout=200)
    assert (ran.stdout.strip(), ran.stderr) == (found, "")


def test_errors_are_pickled_whole():
    with pytest.raises(qkv.FileError) as caught:
        qkv.Model.load("/no/such/model")
    for error in (caught.value, qkv.FileError("m", "p", 7)):
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is qkv.FileError and isinstance(back, OSError)
        assert (str(back), back.path, back.offset) == (str(error), error.path, error.offset)
    back = pickle.loads(pickle.dumps(qkv.TrainingDiverged("m", 5)))
    assert (type(back), str(back), back.step) == (qkv.TrainingDiverged, "m", 5)


def test_results_are_pickled():
    x = np.ones((1, 1, 2, 2), "f4")
    out, lse = qkv.attention(x, x, x, return_lse=True)
    gradients = qkv.attention_backward(x, x, x, out, lse, out)
    back = pickle.loads(pickle.dumps(gradients))
    assert type(back) is qkv.AttentionGradients and (back.dv == gradients.dv).all() and back.dmask is None


def test_what_cannot_be_pickled_says_so():
    for thing in (qkv.Tokenizer.bytes(), qkv.KvCache(1, 1, 2, 2, 4), qkv.Model(seed=1, **SIZES)):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(thing)


def test_nothing_is_printed_about_what_is_held_to_the_end():
    held = "import ctypes, qkv; ctypes.pythonapi.Py_IncRef(ctypes.py_object(qkv.Tokenizer.bytes()))"
    ran = subprocess.run([sys.executable, "-c", held], capture_output=True, text=True, timeout=100)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_model_outlives_its_files(tmp_path):
    qkv.Model(seed=1, tokenizer=qkv.Tokenizer.bytes(), **SIZES).save(tmp_path / "m")
    model = qkv.Model.load(tmp_path / "m")
    loss = model.loss([1, 2, 3])
    shutil.rmtree(tmp_path / "m")
    assert model.loss([1, 2, 3]) == loss and len(model.generate("a", 3)) >= 0
    model.save(tmp_path / "again")
    assert qkv.Model.load(tmp_path / "again").loss([1, 2, 3]) == loss
