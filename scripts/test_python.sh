#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a virtual environment with the Python package's peers, builds and installs the package there as pip does it, and
# runs all of its tests, those with ONNX, PyTorch, JAX and transformers too. Prints the versions and the date.
#
#   scripts/test_python.sh            in build/python-peers
#
# PyTorch's x86 build on PyPI is made for CUDA, whose large libraries it loads though only the processor is used. Where
# a CUDA toolkit of the same major version is in /usr/local/cuda they are not downloaded, but for the few that toolkits
# lack. QKV_PYTHON is the Python to use (python3), QKV_TORCH=installed takes the PyTorch that it sees already.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/python-peers
python=${QKV_PYTHON:-python3}

options=()
[[ ${QKV_TORCH:-} != installed ]] || options=(--system-site-packages)
[[ -x $venv/bin/python ]] || "$python" -m venv "${options[@]}" "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check install --quiet)
"${pip[@]}" numpy pytest hypothesis onnx ml_dtypes jax scikit-build-core nanobind
if ! "$venv/bin/python" -c 'import importlib.metadata as m; m.version("torch"); m.version("transformers")' 2>/dev/null; then
  if [[ -d /usr/local/cuda/lib64 && $(uname -m) == x86_64 ]]; then
    "${pip[@]}" filelock typing-extensions sympy networkx jinja2 fsspec
    "${pip[@]}" --no-deps torch nvidia-cufile nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-nccl-cu13
  else
    "${pip[@]}" torch
  fi
  "${pip[@]}" transformers
fi
"${pip[@]}" --no-build-isolation --force-reinstall --no-deps .

site=$("$venv/bin/python" -c 'import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec("torch").origin).parents[1])')
for folder in "$site"/nvidia/*/lib /usr/local/cuda/lib64; do
  [[ ! -d $folder ]] || export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
date -u +%Y-%m-%d
"$venv/bin/python" - <<'PY'
import importlib.metadata as m, platform
print("Python", platform.python_version(), *(f"{n} {m.version(n)}," for n in
      ("qkv", "numpy", "torch", "transformers", "onnx", "jax", "ml_dtypes", "hypothesis", "pytest")))
PY
QKV_TEST_EXAMPLES=400 OMP_WAIT_POLICY=passive "$venv/bin/python" -m pytest -q -p no:cacheprovider python/tests -W ignore
