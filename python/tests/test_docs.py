# SPDX-License-Identifier: Apache-2.0
"""The Python examples in docs/python.md run as shown."""
import doctest
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["docs/python.md"])
def test_lines_of_python(page):
    found = doctest.testfile(str(ROOT / page), module_relative=False)
    assert found.attempted >= 4 and found.failed == 0
