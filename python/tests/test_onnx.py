# SPDX-License-Identifier: Apache-2.0
"""All of onnx's backend tests of the Attention operator, run with qkv.

Excludes those named _expanded: the same cases as graphs of other operators (MatMul, Softmax ...), without an Attention
node, which do not test qkv.
"""
import collections
import re
import unittest

import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("ml_dtypes")
import onnx.backend.test  # noqa: E402
import onnx.backend.test.loader  # noqa: E402
from onnx_attention import Backend  # noqa: E402



def selected():
    """The runner's test cases, with only the Attention tests; the runner marks all others as skipped."""
    runner = onnx.backend.test.BackendTest(Backend, __name__)
    for name, case in runner.test_cases.items():
        mine = {method: getattr(case, method) for method in dir(case)
                if re.fullmatch(r"test_attention_.*_cpu", method) and "_expanded" not in method}
        if mine:
            yield name, type(name, (unittest.TestCase,), mine)


CASES = dict(selected())
globals().update(CASES)


def test_all_variants_are_there():
    """Fails if a release of onnx renames or removes tests."""
    names = {name[:-len("_cpu")] for case in CASES.values() for name in dir(case) if name.startswith("test_attention_")}
    for part in ("_3d", "_4d", "gqa", "past_and_present", "mask", "softcap", "qk_matmul", "fp16", "bf16", "causal",
                 "nonpad", "window"):
        assert any(part in name for name in names), part
    opsets = collections.Counter(case.model.opset_import[0].version
                                 for case in onnx.backend.test.loader.load_model_tests(kind="node") if case.name in names)
    assert opsets[23] >= 69 and opsets[24] >= 13 and opsets[25] >= 11, opsets
