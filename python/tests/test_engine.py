# SPDX-License-Identifier: Apache-2.0
"""qkv.Engine: concurrent requests."""
import threading

import numpy as np
import pytest

import qkv

PROMPTS = ["abc", "abcd", "x", "In the beginning " * 3]


@pytest.fixture(scope="module")
def model():
    return qkv.Model(tokenizer=qkv.Tokenizer.bytes(), n_layer=2, n_head=2, d_model=32, ctx_len=128, seed=1)


def test_requests_are_as_they_are_alone(model):
    wanted = [model.generate(prompt, 20, seed=i, details=True) for i, prompt in enumerate(PROMPTS)]
    for options in ({}, dict(slots=2, chunk=3), dict(slots=1, prefix_bytes=1 << 20)):
        engine = qkv.Engine(model, **options)
        pieces, found = {}, {}
        for i, prompt in enumerate(PROMPTS):
            pieces[i] = []
            engine.submit(prompt, 20, seed=i, on_token=pieces[i].append, on_end=lambda result, i=i: found.update({i: result}))
        assert engine.waiting == 4
        engine.run()
        assert engine.waiting == engine.running == 0 and not engine.step()
        for i, result in enumerate(wanted):
            assert found[i].text == result.text and (found[i].tokens == result.tokens).all()
            assert "".join(pieces[i]) in result.text and found[i].reason == "max_tokens"
            assert found[i].prompt_evaluated + found[i].prompt_cached == result.prompt_evaluated


def test_ids_stop_strings_and_prefixes(model):
    engine = qkv.Engine(model, prefix_bytes=1 << 20, cache_type="f32")
    ids, ends = [], []
    engine.submit(np.array([1, 2, 3]), 5, temperature=0, on_token=ids.append, on_end=ends.append)
    engine.run()
    assert ids == list(model.generate([1, 2, 3], 5, temperature=0)) and ends[0].text is None
    text = model.generate("abc", 30, seed=4)
    stop = next(text[i:i + 2] for i in range(3, len(text)) if text[i:i + 2].isascii())
    engine.submit("abc", 30, seed=4, stop=[stop, "never there"], on_end=ends.append)
    engine.run()
    assert ends[-1].text == text[:text.index(stop)] and ends[-1].reason == "stop_string"
    engine.submit("abc", 30, seed=4, stream=1, on_end=ends.append)
    engine.run()
    assert ends[-1].text != text
    assert engine.prefix_bytes > 0
    engine.submit("abc", 1, on_end=ends.append)
    engine.run()
    assert ends[-1].prompt_cached == 3 and ends[-1].prompt_evaluated == 0


def test_callbacks_submit_cancel_and_raise(model):
    engine = qkv.Engine(model, slots=4, queue=4)
    ends = {}
    second = None

    def first_token(piece):
        if engine.cancel(second):
            engine.submit("later", 2, on_end=lambda result: ends.update(later=result))
        with pytest.raises(ValueError, match="step"):
            engine.step()
        with pytest.raises(ValueError, match="callback"):
            model.loss([1, 2])

    engine.submit([65, 66], 3, temperature=0, on_token=first_token, on_end=lambda result: ends.update(first=result))
    second = engine.submit("b", 50, on_end=lambda result: ends.update(second=result))
    engine.run()
    assert ends["first"].reason == "max_tokens" and ends["later"].reason == "max_tokens"
    assert ends["second"].reason == "cancelled" and not engine.cancel(second)
    engine.submit([1], 5, on_token=lambda token: 1 / 0)
    engine.submit([1], 5, on_end=lambda result: ends.update(third=result))
    engine.submit([1], 5, on_token=lambda token: False, on_end=lambda result: ends.update(fourth=result))
    with pytest.raises(ZeroDivisionError):
        engine.step()
    engine.run()
    assert ends["third"].reason == "max_tokens" and ends["fourth"].reason == "callback"
    engine.submit("x", 50)
    engine.cancel_all()
    assert not engine.step()


def test_what_is_refused(model):
    engine = qkv.Engine(model, queue=2)
    for wrong in (dict(temperature=-1), dict(top_p=2), dict(stop=[""])):
        with pytest.raises(ValueError):
            engine.submit("abc", **wrong)
    for wrong in (dict(temperature="hot"), dict(heat=1), dict(stop="x"), dict(details=True)):
        with pytest.raises(TypeError):
            engine.submit("abc", **wrong)
    with pytest.raises(ValueError):
        engine.submit([400])
    for wrong in (dict(slots=0), dict(queue=0), dict(chunk=0), dict(cache_type="q4_0")):
        with pytest.raises(ValueError):
            qkv.Engine(model, **wrong)
    engine.submit("a")
    engine.submit("b")
    with pytest.raises(qkv.QueueFullError, match="2 waiting"):
        engine.submit("c")
    trained = qkv.Model(tokenizer=qkv.Tokenizer.bytes(), n_layer=1, n_head=2, d_model=16, ctx_len=16)
    stale = qkv.Engine(trained)
    trainer = qkv.Trainer(trained, np.arange(200) % 256, steps=1, batch_size=1)
    with pytest.raises(ValueError, match="trainer"):
        stale.submit("a")
    del trainer


def test_threads_submit_while_one_steps(model):
    engine = qkv.Engine(model, slots=3)
    wanted = model.generate("abc", 12, seed=1)
    found = []
    threads = [threading.Thread(target=lambda: engine.submit("abc", 12, seed=1, on_end=lambda r: found.append(r.text)))
               for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(found) < 8:
        engine.step()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 8
