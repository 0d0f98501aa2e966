#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that a wheel runs without the packages it was built with: creates a minimal Debian 12 with debootstrap, with
# only Python, NumPy, pytest and hypothesis, copies the wheel's files there and runs the tests that need no other
# library. As root.
#
#   scripts/check_wheel.sh WHEEL [FOLDER]      FOLDER is created or reused; default: a temporary one
set -euo pipefail
if [[ $# -lt 1 || $# -gt 2 || ! -f $1 ]]; then
  echo "usage: check_wheel.sh WHEEL [FOLDER]" >&2
  exit 2
fi
wheel=$(realpath "$1")
tests=$(realpath "$(dirname "$0")/../python/tests")
if [[ $# -eq 2 ]]; then
  root=$2
else
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
fi

if [[ ! -x $root/usr/bin/python3 ]]; then
  debootstrap --variant=minbase --include=python3,python3-numpy,python3-pytest,python3-hypothesis bookworm "$root" >"$root.log" 2>&1 ||
    { tail -5 "$root.log" >&2; exit 1; }
fi
echo "$(chroot "$root" dpkg-query -W -f='x' | wc -c) packages installed; build dependencies among them:" \
  "$(chroot "$root" dpkg-query -W -f='${Package}\n' |
    grep -cE '^(lib(dnnl|fmt|pcre2-dev|utf8proc|xxhash-dev|gomp|opencl|gtest)|ocl-icd|g\+\+|gcc-12$|cmake|ninja)' || true)"
site=$root/usr/local/lib/python3.11/dist-packages
rm -rf "$site"/qkv* "$root/tests"
mkdir -p "$site"
python3 -m zipfile -e "$wheel" "$site"
cp -r "$tests" "$root/tests"
for name in arrays attention errors model process; do
  chroot "$root" env OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1 python3 -m pytest -q -p no:cacheprovider "/tests/test_$name.py"
done
chroot "$root" python3 -c 'import qkv; print("qkv", qkv.__version__, "with the kernels of", qkv.kernel_set())'
chroot "$root" sh -c 'ldd /usr/local/lib/python3.11/dist-packages/qkv/_qkv*.so' | grep -E 'qkv/lib|not found' | sed 's/ (.*//'
