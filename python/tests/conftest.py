# SPDX-License-Identifier: Apache-2.0
"""Makes the tests' helper modules importable from any working directory."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
