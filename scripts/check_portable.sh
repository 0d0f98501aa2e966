#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the program does not depend on the build machine's CPU:
#   1. only objects of one instruction set contain AVX instructions, and they have no functions that the linker could
#      merge with others;
#   2. build/release/qkv starts and computes on emulated x86-64 processors without AVX, with the portable kernels;
#   3. the modules up to attention compile for arm64, and their kernel tests pass under emulation.
#
#   scripts/check_portable.sh [BUILD]     BUILD is build/release; it is rebuilt first
#
# Needs binutils, qemu-user, and for 3 g++-aarch64-linux-gnu and the googletest sources (libgtest-dev). If a tool is
# missing, its check is reported as skipped and the exit status is 3.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
skipped=0

fail() { echo "FAILED: $*" >&2; exit 1; }
have() {
  command -v "$1" >/dev/null && return 0
  echo "SKIPPED: $2, because $1 is missing (Debian package $3)"
  skipped=1
  return 1
}

# Objects of one instruction set and assembly loops: they run only after a CPU check.
one_set='/(kernels/.*/avx[0-9a-z_]*|linalg/.*/tile_avx2)\.cc\.o$'
assembly='/measure/.*/(peak|read)_loops\.cc\.o$'

check_objects() {
  have objdump "the search for AVX instructions" binutils || return 0
  local objects count=0 found
  mapfile -t objects < <(find "$build/src" "$build/cli" -name '*.o' | sort)
  [[ ${#objects[@]} -gt 0 ]] || fail "no objects below $build"
  for object in "${objects[@]}"; do
    if [[ "$object" =~ $one_set ]]; then
      # Weak symbols: the linker keeps one of several definitions for the whole program.
      found=$(nm -C "$object" | grep -E ' [WVu] ' | grep -v DW.ref | head -3 || true)
      [[ -z "$found" ]] || fail "$object shares functions with the rest of the program: $found"
      continue
    fi
    [[ ! "$object" =~ $assembly ]] || continue
    found=$(objdump -d --no-show-raw-insn "$object" |
      grep -E '%[yz]mm|%k[0-7]|[[:space:]]v[a-z0-9]+ .*%xmm' | head -3 || true)
    [[ -z "$found" ]] || fail "$object contains AVX instructions: $found"
    count=$((count + 1))
  done
  echo "ok: no AVX in $count objects; objects of one instruction set share no functions"
}

make_arrays() {
  /usr/bin/python3 - "$1" <<'EOF'
import sys
import numpy as np
random = np.random.default_rng(1)
for name, heads, length in (("q", 4, 70), ("k", 2, 90), ("v", 2, 90)):
    np.save(f"{sys.argv[1]}/{name}.npy", random.standard_normal((2, heads, length, 17), dtype=np.float32))
EOF
}

attend() {  # attend NAME COMMAND...
  local name=$1
  shift
  "$@" attend --q "$work/q.npy" --k "$work/k.npy" --v "$work/v.npy" --causal bottom-right --path tiled --threads 2 \
    --out "$work/$name.npy" >"$work/$name.log" 2>&1 || fail "$* attend: $(tail -3 "$work/$name.log")"
}

check_old_processors() {
  have qemu-x86_64 "starting on an x86-64 without AVX" qemu-user || return 0
  local set
  make_arrays "$work"
  attend native "$build/qkv"
  for cpu in qemu64 Nehalem; do
    local on=(env -u QKV_KERNELS qemu-x86_64 -cpu "$cpu")
    "${on[@]}" "$build/qkv" --version >/dev/null || fail "qkv --version on $cpu"
    set=$("${on[@]}" "$build/tests/kernels/print_kernel_set") || fail "choosing kernels on $cpu: $set"
    [[ "$set" == portable ]] || fail "$cpu has no AVX but uses the kernels '$set'"
    if set=$(qemu-x86_64 -E QKV_KERNELS=avx2 -cpu "$cpu" "$build/tests/kernels/print_kernel_set"); then
      fail "$cpu has no AVX, but accepts QKV_KERNELS=avx2: $set"
    fi
    attend "$cpu" "${on[@]}" "$build/qkv"
    /usr/bin/python3 - "$work/native.npy" "$work/$cpu.npy" <<'EOF' || fail "results on $cpu"
import sys
import numpy as np
here, there = (np.load(path) for path in sys.argv[1:])
sys.exit(not (here.shape == there.shape and np.isfinite(there).all() and np.abs(here - there).max() < 2e-6))
EOF
    echo "ok: $cpu starts, chooses the portable kernels and computes"
  done
}

check_arm() {
  local cxx=aarch64-linux-gnu-g++ gtest=/usr/src/googletest
  have "$cxx" "compiling for arm64" g++-aarch64-linux-gnu || return 0
  local flags=(-std=c++20 -O1 -fopenmp -ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow -Werror
    -DQKV_PLAIN_GEMM "-DQKV_PRINT_KERNEL_SET=\"false\"" -Iinclude -Isrc -Itests)
  local sources tests=()
  mapfile -t sources < <(ls src/{core,os,kernels,linalg,attention,measure}/*.cc | grep -v '_*avx')
  if [[ -d "$gtest/googlemock" ]]; then
    tests=(tests/kernels/*_test.cc tests/kernels/tables.cc)
    flags+=("-I$gtest/googletest/include" "-I$gtest/googlemock/include")
  else
    echo "SKIPPED: the kernel tests on arm64, because $gtest is missing (Debian package libgtest-dev)"
    skipped=1
  fi
  printf '%s\n' "${sources[@]}" "${tests[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} \
    sh -c 'source=$1; shift; exec "$@" -c "$source" -o "'"$work"'/$(echo "$source" | tr / _).o"' sh {} "$cxx" "${flags[@]}" ||
    fail "compiling for arm64"
  echo "ok: ${#sources[@]} files of core, os, kernels, linalg, attention and measure compile for arm64"
  [[ ${#tests[@]} -gt 0 ]] || return 0
  have qemu-aarch64 "running the kernel tests on arm64" qemu-user || return 0
  "$cxx" -std=c++20 -O1 -w "-I$gtest/googletest" "-I$gtest/googletest/include" "-I$gtest/googlemock" \
    "-I$gtest/googlemock/include" -c "$gtest/googletest/src/gtest-all.cc" -o "$work/gtest.o"
  "$cxx" -std=c++20 -O1 -w "-I$gtest/googletest/include" -c "$gtest/googletest/src/gtest_main.cc" -o "$work/main.o"
  "$cxx" -fopenmp "$work"/src_{core,os,kernels}_*.o "$work"/tests_*.o "$work/gtest.o" "$work/main.o" -o "$work/test_kernels"
  # The tests of kernel selection use child processes, which do not work under emulation.
  qemu-aarch64 -L /usr/aarch64-linux-gnu "$work/test_kernels" --gtest_filter=-Choice.* >"$work/arm.log" 2>&1 ||
    fail "kernel tests on arm64: $(tail -20 "$work/arm.log")"
  echo "ok: $(grep -E '^\[  PASSED' "$work/arm.log") on arm64"
}

configure=(-B "$build" -DQKV_BUILD_TESTS=ON)
[[ -f "$build/build.ninja" ]] || configure+=(--preset release)
cmake "${configure[@]}" >/dev/null || fail "configuring $build"
cmake --build "$build" --target qkv print_kernel_set >"$work/build.log" 2>&1 ||
  fail "building qkv and print_kernel_set in $build (with tests): $(tail -5 "$work/build.log")"
check_objects
check_old_processors
check_arm
[[ $skipped == 0 ]] || exit 3
echo "the program does not depend on the build machine's CPU"
