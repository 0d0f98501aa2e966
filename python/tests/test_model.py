# SPDX-License-Identifier: Apache-2.0
"""Models, tokenizers, caches, training and inspection, from Python."""
import gc
import math
import os
import signal
import threading

import numpy as np
import pytest
import qkv

TEXT = "In the beginning God created the heaven and the earth. " * 40
SIZES = dict(n_layer=2, n_head=2, d_model=16, ctx_len=32, vocab_size=257)


@pytest.fixture()
def model():
    return qkv.Model(seed=3, tokenizer=qkv.Tokenizer.bytes(), **SIZES)


def test_tokenizers(tmp_path):
    tokenizer = qkv.Tokenizer.bytes()
    assert tokenizer.encode("añ").tolist() == [97, 195, 177] and tokenizer.decode([97, 195, 177]) == "añ"
    assert tokenizer.encode(b"\xff\0").tolist() == [255, 0] and tokenizer.decode_bytes([255, 0]) == b"\xff\0"
    assert tokenizer.encode(tokenizer.decode([255, 0])).tolist() == [255, 0]
    assert len(tokenizer) == 257 and tokenizer.end_token == 256
    bpe = qkv.Tokenizer.train_bpe(TEXT, 300)
    assert bpe.decode(bpe.encode(TEXT)) == TEXT and len(bpe.encode(TEXT)) < len(TEXT) / 2
    bpe.save(tmp_path / "tokenizer.json")
    assert (qkv.Tokenizer.load(str(tmp_path / "tokenizer.json")).encode(TEXT) == bpe.encode(TEXT)).all()
    with pytest.raises(qkv.FileError) as caught:
        qkv.Tokenizer.load(tmp_path / "none.json")
    assert isinstance(caught.value, OSError) and caught.value.path.endswith("none.json")
    with pytest.raises(TypeError):
        tokenizer.encode(7)
    with pytest.raises(ValueError):
        tokenizer.decode([9999])


def test_a_model_is_what_its_parameters_say(model):
    tokens = np.arange(10, dtype="i4").reshape(2, 5)
    logits = model.forward(tokens)
    assert logits.shape == (2, 5, 257) and model(tokens[0]).shape == (5, 257)
    np.testing.assert_array_equal(model(tokens[0]), logits[0])
    log_probs = logits - np.log(np.exp(logits.astype("f8")).sum(-1, keepdims=True))
    wanted = -np.mean([log_probs[b, t, tokens[b, t + 1]] for b in range(2) for t in range(4)])
    assert model.loss(tokens) == pytest.approx(wanted, rel=1e-6)
    assert model.loss(tokens, targets=np.full((2, 5), -1)) == 0
    short = model.loss(tokens, lengths=[5, 2])
    assert short == pytest.approx(-np.mean([log_probs[0, t, tokens[0, t + 1]] for t in range(4)] + [log_probs[1, 0, 6]]),
                                  rel=1e-6)
    names = model.parameters
    assert sum(p.size for p in names.values()) == model.parameter_count and model.config["d_ff"] == 64
    names["layers.0.wq"][...] = 0
    assert not (model.forward(tokens) == logits).all()
    model.parameters["layers.0.wq"][...] = np.nan
    assert np.isnan(model.forward(tokens)).any()


def test_gradients_by_differences():
    model = qkv.Model(seed=3, dtype="f64", **SIZES)
    tokens = np.arange(12).reshape(2, 6)
    loss, gradients = model.loss_and_gradients(tokens)
    assert loss == pytest.approx(model.loss(tokens), rel=1e-12)
    for name in ("layers.1.wq", "layers.0.wo", "token_embedding"):
        at = np.unravel_index(np.abs(gradients[name]).argmax(), gradients[name].shape)
        losses = []
        for step in (1e-5, -2e-5):
            model.parameters[name][at] += step
            losses.append(model.loss(tokens))
        assert gradients[name][at] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-3)


def test_devices():
    assert list(qkv.devices()) == ["cpu", "reference"]
    narrow, wide = qkv.Model(seed=3, **SIZES), qkv.Model(
        seed=3, device="reference", tokenizer=qkv.Tokenizer.bytes(), **SIZES)
    assert narrow.device == "cpu" and wide.device == "reference" and wide.compute_dtype == "f64"
    tokens = np.arange(12).reshape(2, 6)
    assert wide(tokens).dtype == np.float64
    moved = narrow.on_device("reference")
    np.testing.assert_array_equal(moved(tokens).astype("f4").shape, wide(tokens).shape)
    assert moved.loss(tokens) == pytest.approx(narrow.loss(tokens), rel=1e-5)
    assert len(wide.generate([1, 2, 3], 4, temperature=0)) == 4
    trainer = qkv.Trainer(wide, list(range(200)) * 3, steps=2, batch_size=2)
    assert trainer.step().loss == pytest.approx(np.log(257), rel=0.05)
    with pytest.raises(ValueError, match="expected one of cpu, reference; found 'abacus'"):
        qkv.Model(device="abacus")
    with pytest.raises(ValueError, match="f64"):
        qkv.Model(dtype="f64", device="cpu")


def test_layers_that_differ():
    layers = [{"window_left": 3}, {"rope_theta": 1e6, "sinks": True}]
    model = qkv.Model(seed=3, positions="rotary", layers=layers, **SIZES)
    assert model.config["layers"] == [{"window_left": 3}, {"sinks": True, "rope_theta": 1e6}]
    assert "layers.1.sinks" in model.parameters and "layers.0.sinks" not in model.parameters
    assert qkv.Model(seed=3, **model.config).config == model.config
    with pytest.raises(ValueError, match="expected one of"):
        qkv.Model(layers=[{"windows": 3}, {}], **SIZES)
    with pytest.raises(ValueError, match="list of dicts"):
        qkv.Model(layers=3, **SIZES)


def test_files_give_the_same_model(model, tmp_path):
    tokens = np.arange(8)
    logits = model(tokens)
    model.save(tmp_path / "m")
    back = qkv.Model.load(tmp_path / "m")
    assert (back(tokens) == logits).all() and back.config == model.config and len(back.tokenizer) == 257
    llama = qkv.Model("llama-135m", tokenizer=qkv.Tokenizer.bytes(), n_layer=1, n_head=2, n_kv_head=1, d_model=32,
                      head_dim=16, v_head_dim=16, d_ff=64, ctx_len=32, vocab_size=257)
    llama.save(tmp_path / "hf", format="huggingface")
    assert (qkv.Model.load(tmp_path / "hf")(tokens) == llama(tokens)).all()
    llama.save(tmp_path / "m.gguf", format="gguf", type="f32")
    assert (qkv.Model.load(tmp_path / "m.gguf")(tokens) == llama(tokens)).all()
    (tmp_path / "m" / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    for path in (tmp_path / "m", tmp_path / "nothing", b"\xff\xfe"):
        with pytest.raises(qkv.FileError):
            qkv.Model.load(path)
    with pytest.raises(ValueError, match="format"):
        model.save(tmp_path / "x", format="zip")


def test_generation(model):
    ids = model.generate(np.array([1, 2, 3]), 7, temperature=0)
    assert ids.shape == (7,) and (ids == model.generate([1, 2, 3], 7, temperature=0)).all()
    step = int(model(np.array([1, 2, 3]))[-1].argmax())
    assert ids[0] == step
    text = model.generate("abc", 9, seed=4)
    pieces = []
    assert model.generate("abc", 9, seed=4, on_token=pieces.append) == text and "".join(pieces) == text
    told = model.generate("abc", 9, seed=4, details=True, on_token=lambda piece: False)
    assert told.reason == "callback" and len(told.tokens) < 9 and told.text.startswith(pieces[0][:1])
    with pytest.raises(ZeroDivisionError):
        model.generate("abc", 9, on_token=lambda piece: 1 / 0)
    with pytest.raises(ValueError, match="callback"):
        model.generate("abc", 9, on_token=lambda piece: model.loss([1, 2]))
    assert model.generate("abc", 9, seed=4) == text
    for wrong in (dict(temperature=-1), dict(top_p=2), dict(max_tokens=-1)):
        with pytest.raises(ValueError):
            model.generate("abc", **wrong)
    with pytest.raises(ValueError):
        model.generate([400])


def test_threads_take_turns(model):
    wanted = model.generate("abc", 12, seed=1)
    found = []
    threads = [threading.Thread(target=lambda: found.append(model.generate("abc", 12, seed=1, on_token=lambda _: None)))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4


def test_what_a_model_is_not_asked_for(model):
    for wrong in (lambda: model.forward([257]), lambda: model.forward(np.zeros((1, 33), int)),
                  lambda: model.forward([[[1]]]), lambda: model.loss([1, 2], targets=[1]),
                  lambda: model.forward([1.5]), lambda: model.forward([1 << 40]), lambda: qkv.Model(n_layer="x"),
                  lambda: qkv.Model(nonsense=1), lambda: qkv.Model("gpt9"), lambda: qkv.Model(n_head=5, d_model=12),
                  lambda: qkv.Model(norm="batch"), lambda: qkv.Model(dtype="f16"), lambda: model.loss([1, 2], lengths=[3])):
        with pytest.raises(ValueError):
            wrong()


def test_arguments_of_another_type(model, tmp_path):
    for wrong in (lambda: qkv.Model(3), lambda: qkv.Model(tokenizer="bytes"), lambda: qkv.Model(tokenizer=model),
                  lambda: model.save(tmp_path / "x", format="gguf", type=8), lambda: qkv.Model.load(3),
                  lambda: qkv.Trainer(model.tokenizer, [1, 2]), lambda: model.generate(None)):
        with pytest.raises(TypeError):
            wrong()


def test_the_model_outlives_what_shows_it():
    parameters = qkv.Model(seed=1, **SIZES).parameters
    gc.collect()
    assert np.isfinite(sum(float(p.sum()) for p in parameters.values()))


def test_a_cache_gives_the_bits_of_a_full_pass():
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, h, 9, 8)).astype("f4") for h in (4, 2, 2))
    whole, lse = qkv.attention(q, k, v, causal="top_left", return_lse=True)
    cache = qkv.KvCache(2, 2, 8, 8, capacity=16)
    for t in range(9):
        cache.append(k[:, :, t:t + 1], v[:, :, t:t + 1])
        out, one = cache.attend(q[:, :, t:t + 1], return_lse=True)
        assert (out == whole[:, :, t:t + 1]).all() and (one == lse[:, :, t:t + 1]).all()
    assert cache.size == len(cache) == 9 and cache.capacity == 16 and cache.first_key == 0
    cache.truncate(4)
    cache.discard_oldest(1)
    assert cache.size == 3 and cache.first_key == 1
    with pytest.raises(ValueError):
        cache.append(k, v[:, :, :2])
    with pytest.raises(ValueError):
        cache.append(np.zeros((2, 2, 99, 8), "f4"), np.zeros((2, 2, 99, 8), "f4"))
    with pytest.raises(ValueError):
        cache.attend(q[0])
    low = qkv.KvCache(2, 2, 8, 8, capacity=16, dtype="f16")
    low.append(k, v)
    assert low.attend(q).dtype == np.float32 and low.attend(q.astype("f2")).dtype == np.float16
    assert abs(low.attend(q) - whole).max() < 5e-3


def test_training(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    before = model.parameters["layers.0.wq"].copy()
    config = dict(steps=6, batch_size=2, learning_rate=1e-2, eval_interval=3, checkpoint_interval=3, seed=1)
    trainer = qkv.Trainer(model, text, **config)
    reports = [trainer.step() for _ in range(3)]
    assert [r.step for r in reports] == [1, 2, 3] and reports[0].loss == pytest.approx(math.log(257), rel=0.05)
    assert not (model.parameters["layers.0.wq"] == before).all() and trainer.model.loss([1, 2]) == model.loss([1, 2])
    assert trainer.evaluate().tokens > 0 and trainer.config["batch_size"] == 2
    own = trainer.step(np.arange(8).reshape(2, 4))
    assert own.tokens == 6
    with pytest.raises(ValueError, match="in training"):
        qkv.Trainer(model, text)

    seen = []
    whole = qkv.Trainer(qkv.Model(seed=3, tokenizer=qkv.Tokenizer.bytes(), **SIZES), [text], **config)
    assert whole.run(tmp_path / "run", on_step=seen.append, on_evaluation=seen.append)
    assert [type(r).__name__ for r in seen] == ["StepReport"] * 3 + ["EvalReport"] + ["StepReport"] * 3 + ["EvalReport"]
    half = qkv.Trainer(qkv.Model(seed=3, tokenizer=qkv.Tokenizer.bytes(), **SIZES), str(text), **config)
    assert not half.run(tmp_path / "half", stop_after=4)
    again = qkv.Trainer.resume(tmp_path / "half", text)
    assert again.steps_done == 4 and again.run(tmp_path / "half")
    for name, parameter in whole.model.parameters.items():
        assert (parameter == again.model.parameters[name]).all()
    assert (qkv.Model.load(tmp_path / "half")([1, 2, 3]) == whole.model([1, 2, 3])).all()


def test_the_optimizer_is_a_choice(tmp_path):
    config = dict(optimizer="muon", steps=4, batch_size=2, checkpoint_interval=2, eval_interval=0, seed=1)
    made = lambda: qkv.Trainer(qkv.Model(seed=3, tokenizer=qkv.Tokenizer.bytes(), **SIZES), np.arange(500) % 257, **config)
    whole, half = made(), made()
    assert whole.config["optimizer"] == "muon" and whole.config["muon_momentum"] == 0.95
    assert whole.run(tmp_path / "whole") and not half.run(tmp_path / "half", stop_after=2)
    again = qkv.Trainer.resume(tmp_path / "half", np.arange(500) % 257)
    assert again.run(tmp_path / "half")
    for name, parameter in whole.model.parameters.items():
        assert (parameter == again.model.parameters[name]).all()
    with pytest.raises(ValueError, match="expected muon, which the run began with; found adamw"):
        again.set_config(optimizer="adamw")


def test_what_a_trainer_refuses(model, tmp_path):
    ids = np.arange(200) % 257
    for wrong in (dict(data=ids[:20]), dict(data=ids, learning_rate=-1), dict(data=ids, nonsense=1),
                  dict(data=ids, optimizer="sgd"), dict(data=ids, muon_momentum=0.9),
                  dict(data=np.array([999] * 99)), dict(data=ids, validation=2.0), dict(data=[[1, 2], [3]])):
        with pytest.raises(ValueError):
            qkv.Trainer(model, **wrong)
    with pytest.raises(qkv.FileError):
        qkv.Trainer(model, tmp_path / "nothing.txt")
    trainer = qkv.Trainer(model, (ids, ids[:50]), batch_size=1)  # the model is intact and trains
    assert trainer.step().step == 1 and trainer.has_validation
    with pytest.raises(ZeroDivisionError):
        trainer.run(tmp_path / "run", on_step=lambda report: 1 / 0)


@pytest.mark.parametrize("what", ["train", "generate"])
def test_ctrl_c(model, tmp_path, what):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore SIGINT
    if what == "train":
        trainer = qkv.Trainer(model, np.arange(500) % 257, steps=100000, batch_size=1)
        stops = [lambda report: os.kill(os.getpid(), signal.SIGINT) if report.step == 3 else None]
        with pytest.raises(KeyboardInterrupt):
            trainer.run(tmp_path / "run", on_step=stops[0])
        assert 3 <= trainer.steps_done < 100000
        assert qkv.Trainer.resume(tmp_path / "run", np.arange(500) % 257).steps_done == trainer.steps_done
        return
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        qkv.Model(seed=3, **SIZES).generate([1, 2, 3], 10 ** 7, shift=True, keep=2)
    timer.join()


def test_looking_inside(model, tmp_path):
    trace = qkv.inspect(model, "the heaven", head_scores=True)
    assert trace.tokens.tolist() == list(b"the heaven") and trace.pieces[:2] == [b"t", b"h"] and len(trace.layers) == 2
    first = trace.layers[0]
    np.testing.assert_allclose(first["pattern"].sum(-1), 1, rtol=1e-5)
    q, k, v = (first[n].swapaxes(0, 1) for n in "qkv")
    steps = qkv.attention_steps(q, k, v, causal="top_left")
    np.testing.assert_allclose(steps.probs, first["pattern"], atol=1e-6)
    np.testing.assert_allclose(qkv.attention(q, k, v, causal="top_left").swapaxes(0, 1), first["z"], atol=1e-6)
    np.testing.assert_allclose(trace.logits, model(trace.tokens), atol=1e-5)
    assert len(trace.lens) == 3 and trace.lens[2].top_ids[-1, 0] == trace.logits[-1].argmax()
    assert trace.rollout.shape == (2, 10, 10) and len(trace.head_scores) == 4
    with pytest.raises(ValueError, match="read-only"):
        first["q"][...] = 0
    assert trace.save(tmp_path / "t") > 20
    np.testing.assert_array_equal(np.load(tmp_path / "t" / "blocks.0.attn.hook_q.npy")[0], first["q"])
    assert trace.page().startswith("<!") and len(qkv.head_scores(model)) == 4
    nothing = qkv.head_effect(model, "the heaven")
    assert nothing.kl == 0 and (nothing.before == nothing.after).all()
    assert qkv.head_effect(model, "the heaven", zero=[(0, 1), (1, 0)]).kl > 0
    with pytest.raises(ValueError):
        qkv.head_effect(model, "the heaven", zero=[(7, 0)])
    with pytest.raises(ValueError):
        qkv.inspect(model, [])
