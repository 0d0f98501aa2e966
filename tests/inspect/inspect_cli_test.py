# SPDX-License-Identifier: Apache-2.0
"""qkv inspect on the command line.    inspect_cli_test.py QKV"""
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
import unittest

import numpy as np

QKV = sys.argv[1]
TEXT = "the cat sat on the mat. the cat sat on the mat. a dog ran to the cat and sat. " * 40


def qkv(*arguments, status=0, env=None, data=None):
    done = subprocess.run([QKV, *arguments], capture_output=True, check=False, input=data, env={**os.environ, **(env or {})})
    assert done.returncode == status, (arguments, done.returncode, done.stderr)
    return (done.stdout if status == 0 else done.stderr).decode("utf-8")


class Inspect(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        (cls.root / "text.txt").write_text(TEXT)
        cls.model = str(cls.root / "model")
        qkv("train", "--data", str(cls.root / "text.txt"), "--out", cls.model, "--tokenizer", "bytes", "--preset", "andrea-12m",
            "--n-layer", "2", "--n-head", "2", "--d-model", "16", "--ctx-len", "48", "--steps", "3",
            "--batch-size", "2", "--eval-interval", "3", "--sample-interval", "0")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def inspect(self, *arguments, **more):
        return qkv("inspect", "-m", self.model, *arguments, **more)

    def test_every_head_on_a_line_and_the_lens(self):
        text = self.inspect("-p", "the cat")
        self.assertIn("not evidence of meaning", text)
        self.assertEqual(re.findall(r"^(\d\.\d) ", text, re.M), ["0.0", "0.1", "1.0", "1.1"])
        self.assertEqual(len(re.findall(r"^  (?:embedding|layer \d) ", text, re.M)), 3)
        (self.root / "short.txt").write_text("the cat")
        self.assertEqual(self.inspect("-f", str(self.root / "short.txt")), text)
        self.assertEqual(self.inspect("-f", "-", data=b"the cat"), text)
        (self.root / "long.txt").write_text("the cat" + TEXT)
        self.assertEqual(self.inspect("-f", str(self.root / "long.txt"), "--tokens", "7"), text)

    def test_the_numbers_of_a_head_match_the_arrays(self):
        folder = self.root / "arrays"
        self.inspect("-p", "the cat", "--save", str(folder))
        pattern = np.load(folder / "blocks.1.attn.hook_pattern.npy")
        self.assertEqual(pattern.shape, (1, 2, 7, 7))
        text = self.inspect("-p", "the cat", "--layer", "1", "--head", "0", "--top", "2")
        self.assertNotIn("layer 0, head", text)
        rows = re.findall(r"^ +(\d+)  \S+ +(\d\.\d+)  (\d\.\d+)  (.*)$", text, re.M)
        self.assertEqual(len(rows), 7)
        for query, entropy, first, keys in rows:
            row = pattern[0, 0, int(query), : int(query) + 1].astype(np.float64)
            self.assertAlmostEqual(float(entropy), -(row * np.log(row)).sum(), delta=6e-4)
            self.assertAlmostEqual(float(first), row[0], delta=6e-4)
            shown = re.findall(r"(\d\.\d+) (\d+):", keys)
            self.assertEqual(len(shown), min(2, int(query) + 1))
            for weight, key in shown:
                self.assertAlmostEqual(float(weight), row[int(key)], delta=6e-4)
            self.assertAlmostEqual(float(shown[0][0]), row.max(), delta=6e-4)

    def test_arrays_follow_from_each_other(self):
        folder = self.root / "arrays2"
        self.assertIn("40 arrays", self.inspect("-p", "the cat sat", "--save", str(folder)))
        of = lambda name: np.load(folder / f"blocks.0.{name}.npy").astype(np.float64)
        q, k, v, z = (of(f"attn.hook_{name}")[0] for name in ["q", "k", "v", "z"])  # [ctx, head, d]
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
        mask = np.tril(np.ones(scores.shape[1:], bool))
        np.testing.assert_allclose(of("attn.hook_attn_scores")[0][:, mask], scores[:, mask], atol=1e-5)
        self.assertTrue((of("attn.hook_attn_scores")[0][:, ~mask] == -np.inf).all())
        weights = np.where(mask, np.exp(scores), 0)
        weights /= weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(of("attn.hook_pattern")[0], weights, atol=1e-6)
        np.testing.assert_allclose(z, np.einsum("hqk,khd->qhd", weights, v), atol=1e-5)
        np.testing.assert_allclose(of("hook_resid_post"), of("hook_resid_mid") + of("hook_mlp_out"), atol=1e-6)
        np.testing.assert_array_equal(of("mlp.hook_post"), np.maximum(of("mlp.hook_pre"), 0))
        before = np.load(folder / "hook_embed.npy") + np.load(folder / "hook_pos_embed.npy")  # then an rmsnorm
        np.testing.assert_allclose(np.load(folder / "embed.ln.hook_normalized.npy"),
                                   before / np.load(folder / "embed.ln.hook_scale.npy"), atol=1e-5)
        np.testing.assert_allclose(of("ln2.hook_normalized"), of("hook_resid_mid") / of("ln2.hook_scale"), atol=1e-5)
        self.assertEqual(np.load(folder / "tokens.npy").tolist(), [list(b"the cat sat")])
        self.assertEqual(np.load(folder / "logits.npy").shape[:2], (1, 11))

    def test_the_page(self):
        page = self.root / "page.html"
        self.inspect("-p", "the <script>alert(1)</script>", "--html", str(page))
        text = page.read_text(encoding="utf-8")
        self.assertTrue(text.lower().startswith("<!doctype html>"))
        self.assertNotIn("<script>alert(1)", text)
        self.assertIn("cannot be written", self.inspect("-p", "x", "--html", "/dev/null/x", status=1))

    def test_weights_below_1_are_not_shown_as_1(self):
        """W_Q a thousand times larger makes weights of nearly 0 and nearly 1."""
        sharp = self.root / "sharp"
        shutil.copytree(self.model, sharp)
        data = bytearray((sharp / "model.safetensors").read_bytes())
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        for layer in range(2):
            tensor = header[f"layers.{layer}.wq"]
            begin, end = (8 + size + at for at in tensor["data_offsets"])
            self.assertEqual(tensor["dtype"], "F32")
            data[begin:end] = (np.frombuffer(bytes(data[begin:end]), np.float32) * 1000).tobytes()
        (sharp / "model.safetensors").write_bytes(data)
        text = qkv("inspect", "-m", str(sharp), "-p", "the cat sat on the mat", "--all")
        qkv("inspect", "-m", str(sharp), "-p", "the cat sat on the mat", "--save", str(self.root / "sharp arrays"))
        heads = re.split(r"^layer (\d), head (\d).*$", text, flags=re.M)[1:]
        seen = ""
        for layer, head, part in zip(heads[::3], heads[1::3], heads[2::3]):
            pattern = np.load(self.root / "sharp arrays" / f"blocks.{layer}.attn.hook_pattern.npy")[0, int(head)].astype(np.float64)
            for query, keys in re.findall(r"^ +(\d+)  \S+ +\d\.\d+  \S+  (.*)$", part, re.M):
                for shown, key in re.findall(r"(\S+) (\d+):", keys):
                    weight = pattern[int(query), int(key)]
                    self.assertEqual(shown == "1.000", weight == 1, (shown, weight))
                    self.assertEqual(shown == "0.000", weight == 0, (shown, weight))
                    self.assertEqual(shown == ">.999", 0.9995 <= weight < 1, (shown, weight))
                    self.assertEqual(shown == "<.001", 0 < weight < 0.0005, (shown, weight))
                    seen += shown + " "
        self.assertIn(">.999", seen)
        self.assertIn("<.001", seen)

    def test_scores(self):
        text = self.inspect("--scores")
        self.assertEqual(len(re.findall(r"^\d\.\d +0\.\d{3} +\d\.\d", text, re.M)), 4)
        self.assertEqual(text, self.inspect("--scores", "-t", "1"))
        columns = np.array([[float(x) for x in re.findall(r"0\.\d{3}", line)] for line in text.splitlines()[2:]])
        self.assertEqual(columns.shape, (4, 4))
        self.assertTrue((np.diff(columns, axis=0) <= 0).all(), "ranked")

    def test_ablate_and_patch(self):
        kl = lambda text: float(re.search(r"KL\(before \|\| after\) (\S+) nats", text)[1])
        text = self.inspect("-p", "the cat", "--ablate", "1.0", "--ablate", "0.1")
        self.assertIn("head 1.0: output set to zero\nhead 0.1: output set to zero\n", text)
        self.assertGreater(kl(text), 0)
        rows = re.findall(r"  (0\.\d{4})  (0\.\d{4})  ([+-]0\.\d{4})$", text, re.M)
        self.assertGreaterEqual(len(rows), 5)
        for before, after, change in rows:
            self.assertAlmostEqual(float(after) - float(before), float(change), delta=1.1e-4)
        self.assertEqual(kl(self.inspect("-p", "the cat", "--patch", "1.0", "--patch-text", "the cat")), 0)
        text = self.inspect("-p", "the cat", "--patch", "1.0", "--patch-text", "a dog ran to")
        self.assertIn("last 7 of 7 tokens", text)
        self.assertGreater(kl(text), 0)

    def test_text_cannot_control_the_terminal(self):
        for bad in [b"a\x1b[31mb", "a\u202eb".encode(), b"a\xff\x9b31mb", b"a\rb\x07"]:
            text = self.inspect("-f", "-", "--all", data=bad)
            self.assertIsNone(re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text), bad)
        self.assertIn("\\x1B", self.inspect("-f", "-", "--all", data=b"a\x1b[31mb"))

    def test_colour_where_the_terminal_has_it(self):
        arguments = ["-p", "the cat", "--layer", "0", "--head", "1"]
        plain = self.inspect(*arguments)
        self.assertNotIn("\x1b", plain)
        self.assertRegex(plain, r"(?m)^ +t @@$")
        self.assertIn("\x1b[48;5;", self.inspect(*arguments, "--color", "always", env={"COLORTERM": ""}))
        self.assertIn("\x1b[48;2;", self.inspect(*arguments, "--color", "always", env={"COLORTERM": "truecolor"}))
        self.assertEqual(self.inspect(*arguments, "--color", "always", env={"COLORTERM": ""}).replace("\r", "").count("\n"),
                         plain.count("\n"))

    def test_colour_on_a_terminal(self):
        arguments = ["-p", "the cat", "--layer", "0", "--head", "1"]

        def on_terminal(**env):
            try:
                main, terminal = pty.openpty()
            except OSError as error:
                self.skipTest(f"no pseudo-terminals here: {error}")
            with subprocess.Popen([QKV, "inspect", "-m", self.model, *arguments], stdout=terminal,
                                  env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **env}) as process:
                os.close(terminal)
                seen = b""
                try:
                    while piece := os.read(main, 65536):
                        seen += piece
                except OSError:
                    pass
            os.close(main)
            self.assertEqual(process.returncode, 0)
            return seen

        self.assertIn(b"\x1b[48;", on_terminal())
        self.assertNotIn(b"\x1b", on_terminal(NO_COLOR="1"))
        self.assertNotIn(b"\x1b", on_terminal(TERM="dumb"))

    def test_a_map_wider_than_the_terminal_shows_blocks(self):
        text = self.inspect("-f", str(self.root / "text.txt"), "--tokens", "48", "--layer", "0", "--head", "0")
        self.assertIn("each cell is the maximum of 2 x 2", text)
        rows = text.split("\n\n")[2].splitlines()[:-1]
        self.assertEqual(len(rows), 24)
        self.assertEqual(len(rows[-1]), 14 + 2 * 24)

    def test_wide_characters_keep_the_table_aligned(self):
        (self.root / "ja.txt").write_text("日本語のテキスト。猫が好き。🙂 " * 200, encoding="utf-8")
        model = str(self.root / "ja")
        qkv("train", "--data", str(self.root / "ja.txt"), "--out", model, "--tokenizer", "bpe:280", "--n-layer", "1",
            "--n-head", "1", "--d-model", "8", "--ctx-len", "16", "--steps", "1", "--batch-size", "1", "--eval-interval", "1",
            "--sample-interval", "0")
        text = qkv("inspect", "-m", model, "-p", "日本語のテキスト。猫", "--all")
        wide = lambda line: sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)
        rows = re.findall(r"^( +\d+  \S+ +)\d\.\d+ ", text, re.M)
        self.assertTrue(any(wide(row) > len(row) for row in rows))
        self.assertEqual(len({wide(row) for row in rows}), 1)
        self.assertEqual({wide(row) for row in re.findall(r"^( *\S+ )@@$", text, re.M)}, {14})

    def test_refuses_invalid_arguments(self):
        for options in [[], ["-p", ""], ["-p", "x", "-f", "y"], ["-p", "x", "--layer", "2"], ["-p", "x", "--head", "2"],
                        ["-p", "x", "--layer", "-1"], ["-p", "x" * 49], ["-p", "x", "--ablate", "1"],
                        ["-p", "x", "--ablate", "1."], ["-p", "x", "--ablate", "1.2"], ["-p", "x", "--ablate", "1.0x"],
                        ["-p", "x", "--ablate", "9999999999999999999.0"], ["-p", "x", "--patch", "1.0"],
                        ["-p", "x", "--patch-text", "y"], ["-p", "x", "--ablate", "0.0", "--scores"],
                        ["-p", "x", "--ablate", "0.0", "--patch", "0.0", "--patch-text", "y"], ["--html", "x"], ["--save", "x"],
                        ["--scores", "--layer", "0"], ["--ablate", "0.0"], ["-p", "x", "--tokens", "0"],
                        ["-p", "x", "--color", "blue"]]:
            self.assertEqual(len(self.inspect(*options, status=2).splitlines()), 1, options)
        self.assertIn("No such file", self.inspect("-f", str(self.root / "none"), status=1))
        self.assertEqual(len(self.inspect("-p", "x", "--save", "/dev/null/x", status=1).splitlines()), 1)
        self.assertEqual(len(qkv("inspect", "-m", "/nope", "-p", "x", status=1).splitlines()), 1)

    def test_help_explains(self):
        text = " ".join(qkv("inspect", "--help").split())
        for piece in ["not evidence of what a head means", "qkv inspect -m", "TransformerLens", "induction"]:
            self.assertIn(piece, text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
