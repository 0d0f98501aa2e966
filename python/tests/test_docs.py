# SPDX-License-Identifier: Apache-2.0
"""The lines that docs/python.md shows, run as they stand."""
import doctest
import pathlib

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def test_python_page():
    found = doctest.testfile(str(DOCS / "python.md"), module_relative=False)
    assert found.attempted > 5 and found.failed == 0
