# SPDX-License-Identifier: Apache-2.0
"""The first steps of a scaled-down model of each kind of preset: with the defaults of qkv train the loss falls, and it
never exceeds that of a random guess. Usage: curves_test.py QKV"""

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
MEAN = 10  # steps; the losses of two steps of 512 tokens each differ by about 0.1
MOST_RISE = 0.12  # nats, of the moving average


def run(*command):
    done = subprocess.run([QKV, *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stderr}")
    return done.stdout


def text(size):
    """Words with Zipf frequencies, one fifth of them determined by the previous word."""
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
    """One preset of each kind; presets that differ only in size count as one, since the test shrinks them."""
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
            faults.append(f"a loss of {max(losses):.3f}, above that of a random guess, {guess:.3f}")
        if rise > MOST_RISE:
            faults.append(f"the mean of {MEAN} steps rises by {rise:.3f}")
        if means[-1] > guess - 1:
            faults.append(f"the loss falls only to {means[-1]:.3f}")
        return faults

    def test_the_loss_falls_from_the_first_step(self):
        names, presets = kinds()
        self.assertGreater(len(names), len(presets))
        self.assertLess(2, len(presets))
        for name in presets:
            # The start of a long run, and a whole short one.
            for options in [["--steps", "2000", "--stop-after", "80"], ["--steps", "80"]]:
                with self.subTest(preset=name, options=options):
                    self.assertEqual(self.faults(self.losses("--preset", name, *options)), [])

    def test_a_warm_up_that_is_too_short_is_detected(self):
        rates = ["--learning-rate", "4e-3", "--warmup-steps", "100"]  # the defaults until version 0.1
        found = self.faults(self.losses("--preset", "andrea-12m", "--steps", "2000", "--stop-after", "60", *rates))
        self.assertEqual(len(found), 2, found)


if __name__ == "__main__":
    QKV = os.path.abspath(sys.argv.pop(1))
    unittest.main()
