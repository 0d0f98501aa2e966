#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the readers of files under AddressSanitizer and UBSan, then tells which of their lines what was found covers
# (clang's source-based coverage). Needs what `scripts/install_deps.sh --all` installs, and llvm-14 for the report.
#
#   scripts/fuzz_readers.sh [RUNS] [READER...]     RUNS a reader, 1000000 unless given; all readers unless named
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-1000000}
shift || true
readers=("$@")
[[ ${#readers[@]} -gt 0 ]] || readers=(safetensors index config tokenizer npy andrea harris adapter)
work=build/fuzz-readers
mkdir -p "$work"

cmake --preset fuzz -DQKV_BUILD_TESTS=ON >/dev/null
cmake --build build/fuzz --target reader_corpus "${readers[@]/%/_fuzz}"
cmake -S . -B "$work/coverage" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++-14 -DQKV_PLAIN_GEMM=ON \
  -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping" >/dev/null
cmake --build "$work/coverage" --target reader_corpus

declare -A sources=([safetensors]="safetensors.cc safetensors_header.cc" [index]="tensor_files.cc strict_json.cc"
  [config]="config_json.cc hf_config.cc directory_source.cc" [tokenizer]="tokenizer_json_read.cc ../text/oniguruma.cc"
  [npy]=npy.cc [andrea]=andrea.cc [harris]=andrea_layout.cc [adapter]=lora_file.cc)
for reader in "${readers[@]}"; do
  corpus=$work/$reader
  mkdir -p "$corpus"
  build/fuzz/tests/fuzz/reader_corpus seeds "$reader" "$corpus"
  build/fuzz/tests/fuzz/"${reader}"_fuzz -runs="$runs" -max_len=65536 -timeout=20 -rss_limit_mb=2048 \
    -artifact_prefix="$work/" "$corpus" 2>&1 | grep -E "ERROR|SUMMARY|Done|DONE" || { echo "$reader: FAULT"; exit 1; }
  profile=$work/$reader.profraw
  LLVM_PROFILE_FILE=$profile "$work/coverage/tests/fuzz/reader_corpus" replay "$reader" "$corpus"
  llvm-profdata-14 merge -o "$work/$reader.profdata" "$profile"
  for source in ${sources[$reader]}; do
    llvm-cov-14 report "$work/coverage/tests/fuzz/reader_corpus" -instr-profile="$work/$reader.profdata" \
      "src/formats/$source" | awk -v r="$reader" -v s="$source" '/^TOTAL/ {print r ": " s ": " $10 " of lines covered"}'
  done
done
