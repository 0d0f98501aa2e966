#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the exactness tests (attention, kernels, matmuls, model, generation, training) at every CPU level of this machine
# (QKV_CPU), and some of them on an emulated Haswell (AVX2, no AVX-512). scripts/check_portable.sh covers x86-64 without
# AVX, and arm64.
#
#   scripts/check_levels.sh [BUILD]               BUILD is build/release; its tests are rebuilt first
#   scripts/check_levels.sh --levels [BUILD]      only the levels, nothing emulated
#
# Needs qemu-user (Debian). Without it the emulated part is reported as skipped, and the exit status is 3.
set -euo pipefail
cd "$(dirname "$0")/.."
emulate=1
if [[ "${1:-}" == --levels ]]; then
  emulate=0
  shift
fi
build=${1:-build/release}
export OMP_WAIT_POLICY=passive
unset QKV_KERNELS QKV_CPU
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Each test program and its filter; then the filter under emulation, which is about fifty times slower.
names=(kernels linalg attention model generate train)
declare -A tests=([kernels]='*' [linalg]='*' [attention]='*' [model]='*' [generate]='*'
  [train]='Trainer*:AdamW*:Muon*:Optimizer*:Evaluat*:GoldenLosses*:Lora*')
declare -A emulated=([kernels]='Widths*:Row*:Merge*:Block*:F32Panel*:-RowNorms*' [linalg]='Tile*:BlockMatrix*'
  [attention]='WorkedNumbers*' [model]='Invariance.Repeating*:LaneTree*')

run() {  # run LABEL NAME FILTER COMMAND...
  local label=$1 name=$2 filter=$3 begin=$SECONDS
  shift 3
  if ! "$@" "$build/tests/$name/test_$name" "--gtest_filter=$filter" >"$log" 2>&1; then
    tail -40 "$log" >&2
    echo "FAILED: $name, $label" >&2
    exit 1
  fi
  echo "ok: $label: $name: $(sed -n 's/^\[  PASSED  \] \(.*\)\.$/\1/p' "$log"), $((SECONDS - begin)) s"
}

configure=(-B "$build" -DQKV_BUILD_TESTS=ON)
[[ -f "$build/build.ninja" ]] || configure+=(--preset release)
cmake "${configure[@]}" >/dev/null
cmake --build "$build" --target qkv "${names[@]/#/test_}" >"$log" 2>&1 || { tail -5 "$log" >&2; exit 1; }

# An invalid QKV_CPU makes the program list the levels.
levels=$({ QKV_CPU='?' "$build/qkv" --version 2>&1 || true; } | sed -n 's/.*(\(.*\)).*/\1/p' | tr -d ,)
[[ -n "$levels" ]] || { echo "FAILED: qkv does not list the levels" >&2; exit 1; }
for level in $levels; do
  for name in "${names[@]}"; do run "$level" "$name" "${tests[$name]}" env QKV_CPU="$level"; done
done
[[ $emulate == 1 ]] || exit 0

if ! command -v qemu-x86_64 >/dev/null; then
  echo "SKIPPED: the emulated Haswell, because qemu-x86_64 is missing (Debian package qemu-user)"
  exit 3
fi
for name in kernels linalg attention model; do
  run "emulated Haswell" "$name" "${emulated[$name]}" env OMP_NUM_THREADS=2 qemu-x86_64 -cpu Haswell
done
