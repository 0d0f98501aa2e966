# SPDX-License-Identifier: Apache-2.0
"""qkv explain on the command line.    explain_cli_test.py QKV"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

QKV = sys.argv[1]


def explain(*options, status=0):
    done = subprocess.run([QKV, "explain", *options], capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == status, (done.returncode, done.stderr)
    return done.stdout if status == 0 else done.stderr


class Explain(unittest.TestCase):
    def test_every_step(self):
        text = explain("--batch", "4", "--ctx", "16", "--d-model", "512", "--heads", "4")
        for piece in ["Q = X · W_Q", "[4, 16, 512] · [512, 512] → [4, 16, 512]", "→ [4, 4, 16, 128]",
                      "[4, 4, 16, 128] · [4, 4, 128, 16] → [4, 4, 16, 16]", "√d_k = 11.31", "4,096 scores",
                      "[4, 4, 16, 16] · [4, 4, 16, 128] → [4, 4, 16, 128]", "136 visible pairs per head (53.1 %)"]:
            self.assertIn(piece, text)
        self.assertEqual(explain(), text)  # the default model
        order = [re.search(rf"(?m)^ +\d+ +{name} ", text).start() for name in ["queries", "keys", "values", "scores", "scale", "mask", "softmax",
                                                           "weighted sum", "concatenate", "output", "residual"]]
        self.assertEqual(order, sorted(order))

    def test_a_preset(self):
        text = explain("--preset", "andrea-120m")
        for piece in ["12,582,912 scores", "1,048,576 per head", "√d_k = 8", "[1, 12, 1024, 64]"]:
            self.assertIn(piece, text)
        steps = {s["name"]: s for s in json.loads(explain("--preset", "andrea-120m", "--ctx", "10", "--json"))["steps"]}
        self.assertEqual(steps["scores"]["shape"], [1, 12, 10, 10])
        self.assertEqual(steps["scores"]["flops"], 12 * 100 * 2 * 64)

    def test_numbers(self):
        text = explain("--numbers")
        self.assertEqual(text.count("-inf\n") + text.count("-inf "), 6 + 1)  # the triangle and its caption
        sums = re.findall(r"sum (\S+)", text)
        self.assertEqual(sums, ["1.000"] * 4)
        self.assertEqual(text, explain("--numbers", "--seed", "1"))
        self.assertNotEqual(text, explain("--numbers", "--seed", "2"))
        self.assertNotIn("-inf", explain("--numbers", "--no-causal"))

    def test_softmax(self):
        self.assertEqual(re.findall(r"0\.\d{3}$", explain("--softmax", "0.32,1.87,0.94,-inf"), re.M),
                         ["0.132", "0.622", "0.246", "0.000"])

    def test_scaling(self):
        rows = {r["d_k"]: r for r in json.loads(explain("--scaling", "--json"))}
        for d_k, root in [(64, 8), (256, 16), (4096, 64)]:
            self.assertLess(abs(rows[d_k]["plain_deviation"] / root - 1), 0.06)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.svg")
            self.assertIn("√d_k", explain("--scaling", "--svg", path))
            self.assertTrue(xml.parse(path).getroot().tag.endswith("svg"))
            self.assertIn("cannot be written", explain("--scaling", "--svg", os.path.join(folder, "none", "a.svg"), status=1))

    def test_refuses_invalid_arguments(self):
        for options in [["--d-model", "512", "--heads", "5"], ["--ctx", "0"], ["--preset", "none"], ["--numbers", "--scaling"],
                        ["--numbers", "--ctx", "17"], ["--numbers", "--head", "2"], ["--softmax", "1,x"],
                        ["--softmax", "1,,2"], ["--svg", "x"], ["--dtype", "f8"], ["--ctx", "9000000000000"]]:
            self.assertEqual(len(explain(*options, status=2).splitlines()), 1, options)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
