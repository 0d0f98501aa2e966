#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Debian 12 has everything for building and testing the Python package except nanobind. Downloads a fixed version of it
# once, with pip, into build/python-tools, for the system's Python. Prints the CMake options; if the download fails, the
# option that disables the Python package, with a note on standard error.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly VERSION=3.1.0
readonly SHA256=96984dbe8154ffb86e653b1b60aaeed6985c710c5e75ad0279eb87943c66292d
readonly folder=build/python-tools

python=/usr/bin/python3
[[ -x $python ]] || python=$(command -v python3)
if [[ ! -f $folder/nanobind-$VERSION.dist-info/METADATA ]]; then
  mkdir -p "$folder"
  echo "nanobind==$VERSION --hash=sha256:$SHA256" >"$folder/requirements.txt"
  if ! "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --upgrade \
    --target "$folder" -r "$folder/requirements.txt" >"$folder/pip.log" 2>&1; then
    echo "note: nanobind could not be downloaded ($PWD/$folder/pip.log), so the Python package is not built" >&2
    echo "-DQKV_BUILD_PYTHON=OFF"
    exit 0
  fi
fi
echo "-DQKV_BUILD_PYTHON=ON -DPython_EXECUTABLE=$python -Dnanobind_ROOT=$PWD/$folder/nanobind/cmake"
