# SPDX-License-Identifier: Apache-2.0
"""The tests' own modules are imported by name, from wherever the tests are run."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
