#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Creates a virtual environment with the libraries that the Python package is tested against, installs the package with
# pip, and runs all its tests, including those with ONNX, PyTorch, JAX and transformers. Prints the versions and the
# date.
#
#   scripts/test_python.sh            in build/python-peers
#
# PyTorch's x86 build on PyPI loads large CUDA libraries even if only the CPU is used. If /usr/local/cuda has a CUDA
# toolkit of the same major version, only the few that toolkits lack are downloaded. QKV_PYTHON is the Python to use
# (python3); QKV_TORCH=installed uses its installed PyTorch.
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
