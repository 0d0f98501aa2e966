# SPDX-License-Identifier: Apache-2.0
"""The first steps of every preset's kind of model, made smaller: with the defaults of qkv train the loss falls, and it
is never above that of a random guess. Usage: curves_test.py QKV"""

import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

QKV = None
SIZES = ["n_layer", "n_head", "n_kv_head", "head_dim", "v_head_dim", "d_model", "d_ff", "vocab_size", "ctx_len"]
SMALLER = ["--n-layer", "4", "--n-head", "3", "--d-model", "96", "--ctx-len", "64", "--batch-size", "8"]
VOCABULARY = 2048
MEAN = 10  # steps; the loss of one step on 512 tokens differs by about 0.1 from that of another
MOST_RISE = 0.12  # nats, of the mean


def run(*command):
    done = subprocess.run([QKV, *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stderr}")
    return done.stdout


def text(size):
    """Words with the frequencies of a language (Zipf), a fifth of them by what was before."""
    draw = random.Random(7)
    words = ["".join(draw.choice("etaoinshrdlu") for _ in range(draw.randint(1, 7))) for _ in range(4000)]
    follow = {w: draw.choices(words, k=8) for w in words}
    weights = [1 / (i + 1) for i in range(len(words))]
    out, length, word = [], 0, words[0]
    while length < size:
        word = draw.choice(follow[word]) if draw.random() < 0.2 else draw.choices(words, weights)[0]
        out.append(word + (".\n" if draw.random() < 0.1 else " "))
        length += len(out[-1])
    return "".join(out)[:size]


def kinds():
    """A preset of each kind: presets that differ in sizes only are one when they are made smaller."""
    unknown = subprocess.run([QKV, "info", "--preset", "?"], capture_output=True, text=True, check=False).stderr
    names = re.search("expected one of (.*); found", unknown).group(1).split(", ")
    found = {}
    for name in names:
        config = json.loads(run("info", "--preset", name, "--json"))["config"]
        found.setdefault(json.dumps([v for k, v in config.items() if k not in SIZES]), name)
    return names, list(found.values())


class Curves(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="qkv-curves-")
        with open(os.path.join(cls.folder, "text.txt"), "w", encoding="utf-8") as file:
            file.write(text(300000))
        run("tokenize", "--data", os.path.join(cls.folder, "text.txt"), "--tokenizer", f"bpe:{VOCABULARY}", "--out",
            os.path.join(cls.folder, "tokens.bin"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def losses(self, *options):
        out = os.path.join(self.folder, "run")
        shutil.rmtree(out, ignore_errors=True)
        run("train", "--data", os.path.join(self.folder, "tokens.bin"), "--out", out, *SMALLER, "--dtype", "f32",
            "--sample-interval", "0", "--eval-interval", "0", "--checkpoint-interval", "0", "--threads", "1", *options)
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
            return [line["loss"] for line in map(json.loads, file) if "loss" in line]

    def faults(self, losses):
        guess = math.log(VOCABULARY)
        means = [sum(losses[i:i + MEAN]) / MEAN for i in range(len(losses) - MEAN + 1)]
        rise = max(mean - min(means[:i + 1]) for i, mean in enumerate(means))
        faults = []
        if max(losses) > guess + 0.1:
            faults.append(f"a loss of {max(losses):.3f}, above that of a guess, {guess:.3f}")
        if rise > MOST_RISE:
            faults.append(f"the mean of {MEAN} steps rises by {rise:.3f}")
        if means[-1] > guess - 1:
            faults.append(f"the loss falls to {means[-1]:.3f} only")
        return faults

    def test_the_loss_falls_from_the_first_step(self):
        names, presets = kinds()
        self.assertGreater(len(names), len(presets))
        self.assertLess(2, len(presets))
        for name in presets:
            # The beginning of a long run, and a short one as a whole.
            for options in [["--steps", "2000", "--stop-after", "80"], ["--steps", "80"]]:
                with self.subTest(preset=name, options=options):
                    self.assertEqual(self.faults(self.losses("--preset", name, *options)), [])

    def test_a_warm_up_that_is_too_short_is_seen(self):
        rates = ["--learning-rate", "4e-3", "--warmup-steps", "100"]  # until version 0.1 the defaults
        found = self.faults(self.losses("--preset", "andrea-12m", "--steps", "2000", "--stop-after", "60", *rates))
        self.assertEqual(len(found), 2, found)


if __name__ == "__main__":
    QKV = os.path.abspath(sys.argv.pop(1))
    unittest.main()
