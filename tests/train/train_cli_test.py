# SPDX-License-Identifier: Apache-2.0
"""qkv train on the command line: resuming, interrupts, kills, full disks, bad input. Usage: train_cli_test.py QKV"""

import itertools
import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

from memory_folder import make_memory_folder

QKV = None
SMALL = ["--n-layer", "1", "--n-head", "2", "--d-model", "16", "--ctx-len", "16", "--batch-size", "2", "--tokenizer",
         "bytes", "--threads", "1", "--sample-interval", "0", "--eval-interval", "10", "--eval-iters", "2"]


def processor_levels():
    """The values of QKV_CPU that the program accepts here."""
    done = subprocess.run([QKV, "--version"], env={**os.environ, "QKV_CPU": "?"}, stderr=subprocess.PIPE)
    return re.search(r"\(([^)]*)\)", done.stderr.decode()).group(1).split(", ")


def text(size):
    words = ["in", "the", "beginning", "was", "a", "word", "and", "light", "over", "water"]
    draw = random.Random(1)
    out = ""
    while len(out) < size:
        out += " ".join(draw.choice(words) for _ in range(8)) + ".\n"
    return out[:size]


class TrainTest(unittest.TestCase):
    def setUp(self):
        self.folder = make_memory_folder("qkv-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.data = self.write("text.txt", text(6000))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return self.path(name)

    def command(self, out, *options, data=None):
        return [QKV, "train", "--data", data or self.data, "--out", self.path(out), *SMALL, *options]

    def run_qkv(self, command, status=0, **more):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, **more)
        done.out, done.err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, status, f"{' '.join(command)}\n{done.out}\n{done.err}")
        return done

    def train(self, out, *options, status=0, data=None, **more):
        return self.run_qkv(self.command(out, *options, data=data), status, **more)

    def fails(self, out, *options, says, status=1, data=None, **more):
        """Expects one line on standard error that starts with the program's name and contains `says`."""
        done = self.train(out, *options, status=status, data=data, **more)
        lines = [line for line in done.err.splitlines() if line]
        self.assertEqual(len(lines), 1, done.err)
        self.assertTrue(lines[0].startswith("qkv: "), lines[0])
        for piece in [says] if isinstance(says, str) else says:
            self.assertIn(piece, lines[0])
        return done

    def read(self, *names):
        with open(self.path(os.path.join(*names)), "rb") as file:
            return file.read()

    def assert_same_run(self, a, b):
        newest = os.path.join("checkpoints", max(self.checkpoints(a)))
        for name in ["model.safetensors", newest + "/optimizer.safetensors", newest + "/checkpoint.json",
                     "best/model.safetensors", "config.json", "tokenizer.json", "tokens.bin"]:
            self.assertEqual(self.read(a, name), self.read(b, name), name)
        self.assertEqual(self.metrics(a), self.metrics(b))

    def checkpoints(self, out):
        return sorted(name for name in os.listdir(self.path(out + "/checkpoints")) if not name.endswith(".tmp"))

    def metrics(self, out):
        lines = [json.loads(line) for line in self.read(out, "metrics.jsonl").splitlines()]
        return [{k: v for k, v in line.items() if k not in ("ms", "tokens_per_s", "peak_fraction")} for line in lines]


class Run(TrainTest):
    def test_leaves_a_loadable_model(self):
        done = self.train("out", "--steps", "12", "--checkpoint-interval", "5", "--log-interval", "4")
        self.assertEqual(sorted(os.listdir(self.path("out"))),
                         ["best", "checkpoints", "config.json", "metrics.jsonl", "model.safetensors", "report.html",
                          "run.json", "tokenizer.json", "tokens.bin"])
        self.assertEqual(self.checkpoints("out"), ["step-000005", "step-000010", "step-000012"])
        self.assertEqual(sorted(os.listdir(self.path("out/best"))), ["config.json", "model.safetensors", "tokenizer.json"])
        steps = [line for line in done.out.splitlines() if line.startswith("step") and "tokens/s" in line]
        self.assertEqual([int(line.split()[1].split("/")[0]) for line in steps], [1, 4, 8, 12])
        for piece in ["loss", "grad", "lr", " ms", "tokens/s", "% of peak", "left"]:
            self.assertIn(piece, steps[0])
        self.assertIn("bits per byte", done.out)
        self.assertIn("done: 12 steps", done.out)
        metrics = [json.loads(line) for line in self.read("out", "metrics.jsonl").splitlines()]
        self.assertEqual([m["step"] for m in metrics if "loss" in m], list(range(1, 13)))
        self.assertEqual([m["step"] for m in metrics if "val_loss" in m], [10, 12])
        self.assertEqual(set(metrics[0]),
                         {"step", "loss", "grad_norm", "learning_rate", "ms", "tokens_per_s", "peak_fraction"})
        self.assertLess(abs(metrics[0]["loss"] / 5.549 - 1), 0.02)  # ln 257
        self.run_qkv([QKV, "generate", "-m", self.path("out"), "-p", "in the", "-n", "5"])
        self.run_qkv([QKV, "info", "-m", self.path("out/best")])

    def test_is_the_same_at_any_thread_count(self):
        self.train("one", "--steps", "8")
        self.run_qkv([a if a != "1" or b != "--threads" else "3"
                      for b, a in zip([""] + self.command("two"), self.command("two"))] + ["--steps", "8"])
        self.assertEqual(self.read("one", "model.safetensors"), self.read("two", "model.safetensors"))

    def test_shows_samples(self):
        command = self.command("out", "--steps", "4", "--sample-prompt", "in the", "--sample-tokens", "7")
        command[command.index("--sample-interval") + 1] = "2"
        done = self.run_qkv(command)
        self.assertIn("sample after step 2:\n  | in the", done.out)
        self.assertIn("sample after step 4:", done.out)
        samples = {m["step"]: m["sample"] for m in self.metrics("out") if "sample" in m}
        self.assertEqual(sorted(samples), [2, 4])
        self.assertTrue(all(text.startswith("in the") for text in samples.values()), samples)

    def test_reports_repetitive_samples(self):
        # A model trained only on one repeated line generates nothing else.
        data = self.write("line.txt", "round and round\n" * 400)
        done = self.train("out", "--steps", "150", "--learning-rate", "1e-2", "--sample-interval", "150", "--d-model", "32",
                          "--sample-tokens", "180", "--sample-prompt", "round", "--ctx-len", "192", data=data)
        self.assertIn("warning: the sample after step 150 is repetitive", done.out + done.err)
        samples = [line for line in map(json.loads, self.read("out", "metrics.jsonl").splitlines()) if "sample" in line]
        self.assertEqual([(line["step"], line["repeats"]) for line in samples], [(150, True)])

    def test_wider_models_take_smaller_steps_by_default(self):
        one = ["--steps", "1", "--warmup-steps", "0", "--schedule", "constant"]
        for out, more, rate in [("narrow", [], 4e-3), ("wide", ["--d-model", "384"], 1e-3),
                                ("asked", ["--d-model", "384", "--learning-rate", "3e-3"], 3e-3)]:
            self.train(out, *one, *more)
            self.assertAlmostEqual(self.metrics(out)[0]["learning_rate"], rate)

    def test_shows_a_bar_on_a_terminal(self):
        try:
            leader, follower = pty.openpty()
        except OSError as error:
            self.skipTest(f"no pseudo-terminals here: {error}")
        process = subprocess.Popen(self.command("out", "--steps", "200"), stdout=subprocess.DEVNULL, stderr=follower)
        os.close(follower)
        seen = b""
        while True:
            try:
                piece = os.read(leader, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        os.close(leader)
        self.assertEqual(process.wait(), 0)
        self.assertIn(b"training [", seen)
        self.assertIn(b" left", seen)

    def test_trains_its_tokenizer(self):
        done = self.train("out", "--steps", "2", "--tokenizer", "bpe:280")
        self.assertIn("BPE, 280 tokens", done.out)
        with open(self.path("out/config.json")) as file:
            self.assertEqual(json.load(file)["vocab_size"], 280)
        other = self.train("other", "--steps", "2", "--tokenizer", self.path("out/tokenizer.json"))
        self.assertIn("vocabulary 280", other.out)
        self.assertEqual(self.read("out", "model.safetensors"), self.read("other", "model.safetensors"))

    def test_accepts_any_bytes(self):
        data = self.write("bytes", bytes(range(256)) * 8 + b"\0\0\xff\xfe\xc0\x80")
        self.train("out", "--steps", "2", "--format", "text", data=data)
        self.train("bpe", "--steps", "2", "--tokenizer", "bpe:270", "--format", "text", data=data)

    def test_reads_several_files_and_pipes(self):
        more = self.write("more.txt", text(300))
        command = [QKV, "train", "--data", self.data, more, "--out", self.path("out"), *SMALL, "--steps", "1"]
        self.run_qkv(command)
        done = subprocess.run(["bash", "-c", 'exec "$0" train --data <(cat "$1") --out "$2" --steps 1 "${@:3}"', QKV,
                               self.data, self.path("pipe"), *SMALL], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr)


class Computing(TrainTest):
    def test_compute_dtypes(self):
        losses = {}
        for dtype in "f32", "bf16":
            done = self.train(dtype, "--steps", "4", "--dtype", dtype)
            losses[dtype] = [line["loss"] for line in self.metrics(dtype) if "loss" in line]
            if dtype == "f32" or "no bf16 instructions" not in done.err:
                self.assertIn(f"compute: {dtype}, ", done.out)
        self.assertAlmostEqual(losses["f32"][-1], losses["bf16"][-1], delta=0.05)

    def test_a_processor_without_bf16_trains_in_f32_and_reports_it(self):
        plain = {**os.environ, "QKV_CPU": "portable"}
        done = self.train("asked", "--steps", "3", "--dtype", "bf16", env=plain)
        self.assertIn("no bf16 instructions; training in f32", done.err)
        self.assertIn("compute: f32, ", done.out)
        self.assertIn("compute: f32, ", self.train("auto", "--steps", "3", env=plain).out)

    def test_recomputing_changes_no_bit_and_dropout_does(self):
        weights = {}
        for name, options in {"plain": [], "recomputed": ["--recompute"], "dropped": ["--dropout", "0.2"]}.items():
            self.train(name, "--steps", "5", *options)
            weights[name] = self.read(name, "model.safetensors")
        self.assertEqual(weights["plain"], weights["recomputed"])
        self.assertNotEqual(weights["plain"], weights["dropped"])
        self.train("dropped_in_parts", "--steps", "5", "--dropout", "0.2", "--stop-after", "2")
        self.train("dropped_in_parts", "--resume", data=self.data)
        self.assertEqual(self.read("dropped_in_parts", "model.safetensors"), weights["dropped"])

    def test_a_profile_shows_where_the_time_went(self):
        out = self.train("model", "--steps", "3", "--profile").out
        for part in "attention", "projections", "mlp", "norms", "head_and_loss", "optimizer", "data", "step":
            self.assertRegex(out, rf"(?m)^{part} +[0-9.]+")
        self.assertRegex(out, r"speed: [0-9.]+ tokens/s overall")


class Resume(TrainTest):
    RUN = ["--steps", "40", "--checkpoint-interval", "9"]

    def test_seventeen_and_twenty_three_are_forty(self):
        self.train("straight", *self.RUN)
        done = self.train("broken", *self.RUN, "--stop-after", "17")
        self.assertIn("stopped; saved at step 17 in ", done.out)
        done = self.train("broken", *self.RUN, "--resume")
        self.assertIn("resuming after step 17 of 40", done.out)
        self.assert_same_run("straight", "broken")

    def test_needs_nothing_but_the_directory(self):
        self.train("straight", *self.RUN)
        self.train("broken", *self.RUN, "--stop-after", "17")
        os.rename(self.data, self.path("gone"))
        self.run_qkv([QKV, "train", "--out", self.path("broken"), "--resume", "-t", "1"])
        self.assert_same_run("straight", "broken")

    def test_a_constant_rate_resumes_from_a_shorter_run(self):
        constant = ["--schedule", "constant", "--warmup-steps", "3"]
        self.train("straight", "--steps", "40", *constant)
        self.train("broken", "--steps", "17", *constant)
        self.train("broken", "--steps", "40", *constant, "--resume")
        self.assertEqual(self.read("straight", "model.safetensors"), self.read("broken", "model.safetensors"))

    def rates(self, out):
        lines = [json.loads(line) for line in self.read(out, "metrics.jsonl").decode().splitlines()]
        return [line["learning_rate"] for line in lines if "learning_rate" in line]

    def test_a_resumed_schedule_never_rises_silently(self):
        self.fails("out", "--steps", "4", "--learning-rate", "1e-4", "--min-lr", "1e-3", status=2,
                   says="--min-lr must be at most the --learning-rate, 1e-04; found 0.001")
        self.train("out", "--steps", "10", "--learning-rate", "1e-3", "--min-lr", "1e-4")
        self.fails("out", "--resume", "--learning-rate", "1e-5", status=2, says=["--min-lr", "1e-05", "0.0001"])
        done = self.train("out", "--resume", "--steps", "14")
        self.assertIn("the learning rate schedule ends at step 10, as planned, and stays at 1.00e-04", done.out)
        self.assertEqual(self.rates("out")[-5:], [1e-4] * 5)
        done = self.train("out", "--resume", "--steps", "20", "--decay-steps", "20")
        self.assertRegex(done.out, r"the learning rate rises from 1.00e-04 at step 14 to [2-9][.0-9]*e-04, as these")
        derived = ["--steps", "10", "--learning-rate", "1e-3"]
        self.train("derived", *derived, "--stop-after", "5")
        done = self.train("derived", "--resume", *derived[:2], "--learning-rate", "1e-5")
        self.assertNotIn("note: the learning rate", done.out)
        self.assertAlmostEqual(self.rates("derived")[-1], 1e-6, places=12)

    def test_interrupting_finishes_the_step_saves_and_reports_it(self):
        self.train("straight", "--steps", "3000", "--eval-interval", "0")
        for number in (signal.SIGINT, signal.SIGTERM):
            out = f"broken{int(number)}"
            process = subprocess.Popen(self.command(out, "--steps", "3000", "--eval-interval", "0", "--log-interval", "1"),
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for line in process.stdout:
                if line.startswith(b"step") and b"tokens/s" in line:
                    break
            process.send_signal(number)
            rest, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + number, errors)
            self.assertRegex(errors, rb"qkv: finishing step \d+(, about 1 s)?; press Ctrl-C again to stop without saving")
            self.assertRegex(rest, rb"interrupted; saved at step \d+ in ")
            self.train(out, "--eval-interval", "0", "--resume")
            self.assertEqual(self.read("straight", "model.safetensors"), self.read(out, "model.safetensors"))

    def test_a_long_step_is_dropped_between_micro_batches(self):
        options = ["--steps", "2", "--eval-interval", "0", "--batch-size", "1", "--grad-accum", "20000"]
        self.train("straight", *options[2:], "--steps", "1", "--grad-accum", "20")
        process = subprocess.Popen(self.command("long", *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for line in process.stdout:
            if b"FLOP" in line:  # the last line before the first step
                break
        time.sleep(0.5)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(process.returncode, 130, errors)
        self.assertRegex(errors, rb"finishing a micro-batch; step 1 is dropped, --resume repeats it")
        self.assertIn(b"interrupted; saved at step 0", rest)
        self.train("long", "--resume", "--steps", "1", "--grad-accum", "20", "--eval-interval", "0", "--batch-size", "1")
        self.assertEqual(self.read("straight", "model.safetensors"), self.read("long", "model.safetensors"))

    def test_a_second_signal_ends_at_once(self):
        process = subprocess.Popen(self.command("twice", "--steps", "100000", "--eval-interval", "0", "--log-interval", "1"),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for line in process.stdout:
            if line.startswith(b"step"):
                break
        os.kill(process.pid, signal.SIGSTOP)  # both signals are pending
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        os.kill(process.pid, signal.SIGCONT)
        process.communicate(timeout=60)
        self.assertIn(process.returncode, (-signal.SIGINT, -signal.SIGTERM, 130, 143))
        self.run_qkv([QKV, "verify", self.path("twice")])

    def test_survives_being_killed_at_any_moment(self):
        options = ["--steps", "50", "--checkpoint-interval", "1", "--eval-interval", "3", "--log-interval", "1"]
        self.train("straight", *options)
        draw = random.Random(7)
        kills = 0
        for _ in range(8):
            more = ["--resume"] if kills > 0 else []
            process = subprocess.Popen(self.command("killed", *options, *more), stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            for line in process.stdout:
                if line.startswith(b"step"):
                    break
            time.sleep(0.06 * draw.random())
            process.kill()
            process.communicate()
            kills += process.returncode == -signal.SIGKILL
        self.assertGreater(kills, 1)
        self.train("killed", *options, "--resume")
        self.assert_same_run("straight", "killed")

    def test_reports_what_cannot_be_resumed(self):
        self.fails("none", "--steps", "3", "--resume", says="no checkpoint to resume from")
        self.train("out", "--steps", "3")
        other = self.write("other.txt", text(5999))
        self.fails("out", "--resume", says="is not the text", data=other)
        self.fails("out", "--resume", "--n-layer", "2", says="model cannot change", status=2)
        self.fails("out", "--resume", "--tokenizer", "bpe:280", says="tokenizer cannot change", status=2)
        shutil.rmtree(self.path("out/checkpoints"))
        self.fails("out", "--resume", says="a model but no training state")


class Options(TrainTest):
    def config(self, content, *more, out="out"):
        return [QKV, "train", "--config", self.write("c.toml", content), "--data", self.data, "--out", self.path(out), *more]

    def test_configuration_file_and_command_line_agree(self):
        self.train("options", "--steps", "5", "--learning-rate", "0.01", "--tied-head")
        self.run_qkv(self.config("""
# nanoGPT option names
max_iters = 5
n_layer = 1
n_head = 2
n_embd = 16
block_size = 16
batch_size = 7
learning_rate = 0.01
tokenizer = "bytes"
tied_head = true
eval-interval = 10
eval_iters = 2
sample_interval = 0
""", "--batch-size", "2", "--threads", "1"))
        self.assert_same_run("options", "out")

    def test_underscores_and_aliases(self):
        self.train("dashes", "--steps", "3", "--warmup-steps", "2", "--grad-accum", "2")
        self.train("aliases", "--max_iters=3", "--warmup_iters", "2", "--gradient_accumulation_steps", "2")
        self.assert_same_run("dashes", "aliases")

    def test_mistakes_in_the_file_are_named(self):
        for content, says in [("nonsense = 3\n", "nonsense"), ("steps = many\n", "many"),
                              ("[model]\nn_layer = 1\n", "model.n_layer"), ("schedule = \"steep\"\n", "steep")]:
            done = self.run_qkv(self.config(content), status=2)
            self.assertIn(says, done.err)
            self.assertIn("c.toml", done.err)
        self.run_qkv([QKV, "train", "--config", self.path("missing"), "--data", self.data, "--out", self.path("x")], 1)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_explicit_options_change_a_preset(self):
        self.train("out", "--preset", "andrea-12m", "--steps", "1", "--activation", "gelu", "--d-ff", "24")
        with open(self.path("out/config.json")) as file:
            config = json.load(file)
        self.assertEqual((config["n_layer"], config["d_ff"], config["activation"]), (1, 24, "gelu"))

    def test_usage_errors(self):
        self.fails("out", "--steps", "x", says="x", status=2)
        self.fails("out", "--schedule", "steep", says="steep", status=2)
        self.fails("out", "--preset", "andrea-9m", says="andrea-9m", status=2)
        self.fails("out", "--frobnicate", says="frobnicate", status=2)
        self.fails("out", "--tokenizer", "bpe:12", says="bpe:12", status=2)
        self.run_qkv([QKV, "train", "--out", self.path("out")], 2)
        self.run_qkv([QKV, "train", "--data", self.data], 2)


class BadInput(TrainTest):
    def test_files(self):
        self.fails("out", "--steps", "1", says="missing.txt: ", data=self.path("missing.txt"))
        self.fails("out", "--steps", "1", says="empty.txt: ", data=self.write("empty.txt", ""))
        os.mkdir(self.path("nothing"))
        self.fails("out", "--steps", "1", says="nothing", data=self.path("nothing"))
        self.assertFalse(os.path.exists(self.path("out")))

    def test_short_text(self):
        for size in (5, 16, 17):  # a context of 16; 17 bytes leave 16 for training
            self.fails("out", "--steps", "1", says="17", data=self.write("short", text(size)))
        self.assertFalse(os.path.exists(self.path("out")))
        self.fails("out", "--steps", "1", "--tokenizer", "bpe:280", says="17", data=self.write("short", "a word " * 6))
        self.assertFalse(os.path.exists(self.path("out")))
        done = self.train("out", "--steps", "2", "--val-fraction", "0", data=self.write("short", text(17)))
        self.assertIn("no validation text", done.out)

    def test_impossible_configurations(self):
        self.fails("out", "--d-model", "17", says=["--d-model", "17"], status=2)
        self.fails("out", "--n-kv-head", "3", says="--n-kv-head", status=2)
        self.fails("out", "--steps", "0", says="steps", status=2)
        self.fails("out", "--beta1", "1", says="beta1", status=2)
        self.fails("out", "--val-fraction", "1", says="--val-fraction", status=2)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_optimizers(self):
        for optimizer in ["adamw", "muon"]:
            options = ["--steps", "6", "--checkpoint-interval", "2", "--optimizer", optimizer]
            self.train(optimizer, *options)
            self.train(optimizer + "-2", *options, "--stop-after", "3")
            self.train(optimizer + "-2", "--resume")
            self.assert_same_run(optimizer, optimizer + "-2")
        self.fails("muon", "--resume", "--steps", "8", "--optimizer", "adamw", status=2,
                   says="expected muon, which the run began with; found adamw")
        self.fails("out", "--optimizer", "sgd", says=["--optimizer", "sgd"], status=2)
        self.fails("out", "--muon-momentum", "0.9", says="--muon-momentum expected the optimizer muon; found adamw", status=2)
        self.fails("out", "--optimizer", "muon", "--muon-momentum", "1", says="--muon-momentum", status=2)
        said = self.run_qkv([QKV, "convert", self.path("muon/checkpoints/step-000006"), self.path("converted")])
        self.assertIn("the optimizer state is not AdamW's and is not converted", said.out)

    def test_existing_directories(self):
        self.train("out", "--steps", "2")
        before = self.checkpoints("out")
        self.fails("out", "--steps", "2", says=["out", "--resume"])
        self.assertEqual(self.checkpoints("out"), before)
        os.mkdir(self.path("other"))
        self.write("other/novel.txt", "precious")
        self.fails("other", "--steps", "2", says="other")
        self.assertEqual(os.listdir(self.path("other")), ["novel.txt"])
        self.write("file", "x")
        self.fails("file", "--steps", "2", says="file")

    def test_a_full_disk_loses_nothing(self):
        self.train("out", "--steps", "20", "--checkpoint-interval", "4", "--stop-after", "6")
        before = {name: self.read("out/checkpoints", name, "optimizer.safetensors") for name in self.checkpoints("out")}
        size = os.path.getsize(self.path("out/checkpoints/step-000006/optimizer.safetensors"))

        def limit():  # files cannot grow past this: writing fails as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))

        done = self.train("out", "--resume", "--save-patience", "0", status=1, preexec_fn=limit)
        warnings = [line for line in done.err.splitlines() if line.startswith("qkv: warning: step ")]
        self.assertEqual([line.split()[3] for line in warnings if "not saved" in line], ["8:", "12:", "16:", "20:"])
        self.assertIn("step 20/20", done.out)
        self.assertIn("optimizer.safetensors: cannot be written: File too large", warnings[0])
        self.assertIn("the checkpoint of step 6", done.err.splitlines()[-1])
        for name, content in before.items():
            self.assertEqual(self.read("out/checkpoints", name, "optimizer.safetensors"), content, name)
        self.assertEqual(sorted(os.listdir(self.path("out/checkpoints"))), sorted(before))
        self.train("out", "--resume")
        self.train("straight", "--steps", "20", "--checkpoint-interval", "4")
        self.assert_same_run("straight", "out")
        self.fails("fresh", "--steps", "2", says="cannot be written", preexec_fn=limit)
        self.assertFalse(os.path.exists(self.path("fresh")))

    def test_continues_without_a_report(self):
        self.train("out", "--steps", "4", "--stop-after", "2")
        os.remove(self.path("out/report.html"))
        os.mkdir(self.path("out/report.html"))
        done = self.train("out", "--resume")
        self.assertIn("done: 4 steps", done.out)
        self.assertEqual(done.err.count("qkv: warning: cannot write the report: "), 1, done.err)
        os.rmdir(self.path("out/report.html"))
        self.run_qkv([QKV, "report", self.path("out")])
        page = self.read("out", "report.html").decode()
        self.assertIn('id="phase">finished<', page)
        self.assertIn(">run resumed<", page)
        self.assertIn("<dt>d_model</dt>", page)

    def test_a_damaged_checkpoint_is_refused_by_name(self):
        self.train("straight", "--steps", "20", "--checkpoint-interval", "4")
        self.train("out", "--steps", "20", "--checkpoint-interval", "4", "--stop-after", "14")
        with open(self.path("out/checkpoints/step-000014/optimizer.safetensors"), "r+b") as file:
            file.seek(3000)
            file.write(b"?")
        os.truncate(self.path("out/checkpoints/step-000012/model.safetensors"), 1000)
        done = self.train("out", "--resume")
        lines = [line for line in done.err.splitlines() if "rejected" in line]
        self.assertEqual(len(lines), 2, done.err)
        for line, name in zip(lines, ["step-000014/optimizer.safetensors", "step-000012/model.safetensors"]):
            self.assertTrue(line.startswith("qkv: warning: "), line)
            self.assertIn(name, line)
            self.assertIn("continuing from step 8", line)
        self.assertIn("resuming after step 8 of 20", done.out)
        self.assert_same_run("straight", "out")
        self.assertEqual(self.checkpoints("out"), self.checkpoints("straight"))
        for name in self.checkpoints("out"):
            os.truncate(self.path(f"out/checkpoints/{name}/config.json"), 10)
        self.fails("out", "--resume", says=["no usable checkpoint", "step-000012/config.json"])

    def test_a_killed_start_begins_again(self):
        os.makedirs(self.path("out/checkpoints/step-000000.8388607-1.tmp"))
        self.write("out/checkpoints/step-000000.8388607-1.tmp/model.safetensors", "half")
        self.write("out/tokens.bin.8388607-0.tmp", "half")
        self.train("out", "--steps", "2")
        self.assertEqual(self.checkpoints("out"), sorted(os.listdir(self.path("out/checkpoints"))))
        self.assertNotIn("tokens.bin.8388607-0.tmp", os.listdir(self.path("out")))

    def test_reported_memory_matches_memory_used(self):
        sizes = ["--n-layer", "4", "--n-head", "6", "--d-model", "384", "--ctx-len", "256", "--batch-size", "4"]
        levels = [os.environ.get("QKV_CPU", ""), "avx2" if "avx2" in processor_levels() else "portable"]
        options = (["--dtype", "f32"], ["--dtype", "f32", "--recompute"], ["--dtype", "auto"],
                   ["--dtype", "f32", "--optimizer", "muon"])
        for level, more in itertools.product(levels, options):
            command = [QKV, "train", "--data", self.write("long.txt", text(20000)), "--out", self.path("out"),
                       "--tokenizer", "bytes", "--steps", "1", "--eval-interval", "0", "--sample-interval", "0",
                       "--threads", "2", *sizes, *more]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "QKV_CPU": level})
            out = process.stdout.read().decode()
            process.stdout.close()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = status
            self.assertEqual(status, 0)
            told = float(next(line for line in out.splitlines() if line.startswith("memory per step: ")).split()[3])
            taken = usage.ru_maxrss * 1024e-9
            self.assertLess(abs(told / taken - 1), 0.1, f"{level} {more}: {told} GB told, {taken} GB taken")
            shutil.rmtree(self.path("out"))

    def test_too_little_memory_is_reported_at_the_start(self):
        started = time.monotonic()
        self.fails("out", "--steps", "1", "--n-layer", "1000", "--d-ff", "100000000",
                   says=["not enough memory", "a step needs", "GB", "use a smaller model"])
        self.assertLess(time.monotonic() - started, 100)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_a_loss_that_becomes_nan(self):
        done = self.fails("out", "--steps", "40", "--learning-rate", "1e38", "--grad-clip", "0", "--warmup-steps", "0",
                          says=["NaN", "step ", "checkpoint of step"])
        self.assertIn("skipped", done.out)
        self.run_qkv([QKV, "info", "-m", self.path("out")])


if __name__ == "__main__":
    QKV = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=1)
