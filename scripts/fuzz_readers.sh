#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the file readers under AddressSanitizer and UBSan, then reports the line coverage of the inputs found (clang
# source-based coverage). Needs what `scripts/install_deps.sh --all` installs, and llvm-14 for the report.
#
#   scripts/fuzz_readers.sh [RUNS] [READER...]     RUNS per reader (1000000); default: all readers
#
# Prints one table row per reader. Inputs are kept in build/fuzz-readers/inputs for the next time, inputs and logs of
# faults in build/fuzz-readers/faults.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-1000000}
shift || true
work=build/fuzz-readers
build=$work/build
coverage=$work/coverage
mkdir -p "$work/faults"
rm -f "$work"/*.profraw

# The sources of each reader, and the maximum input length.
declare -A sources=(
  [safetensors]="formats/safetensors.cc formats/safetensors_header.cc" [index]="formats/tensor_files.cc formats/strict_json.cc"
  [config]="formats/config_json.cc formats/hf_config.cc" [directory]="formats/directory_source.cc formats/hf_names.cc formats/named_tokens.cc"
  [tokenizer]="formats/tokenizer_json_read.cc formats/tokenizer_characters.cc text/oniguruma.cc" [npy]=formats/npy.cc
  [andrea]=formats/andrea.cc [harris]=formats/andrea_layout.cc [adapter]=formats/lora_file.cc
  [gguf]="formats/gguf.cc formats/gguf_parse.cc formats/gguf_config.cc formats/gguf_names.cc formats/gguf_source.cc
          formats/gguf_tokenizer_read.cc"
  [chat]="formats/chat_file.cc text/chat_form.cc text/chat_template.cc"
  [prompt]="generate/prompt_cache.cc model/model_state.cc" [tokens]="train/token_file.cc train/dataset.cc"
  [lines]="train/json_lines.cc train/corpus.cc train/text_chunks.cc"
  [checkpoint]="train/checkpoint_directory.cc train/run_state.cc" [notes]="train/run_notes.cc train/run_log.cc")
declare -A longest=([tokenizer]=8192 [andrea]=16384 [gguf]=12288 [notes]=8192)
readers=("$@")
[[ ${#readers[@]} -gt 0 ]] ||
  readers=(safetensors index config directory npy andrea harris adapter gguf chat prompt tokens lines checkpoint notes
    tokenizer)
group_of() { case $1 in prompt | tokens | lines | checkpoint | notes) echo run ;; *) echo format ;; esac; }

cmake --preset fuzz -B "$build" -DQKV_BUILD_TESTS=ON -DQKV_PORTABLE_KERNELS=ON >/dev/null
groups=$(for reader in "${readers[@]}"; do group_of "$reader"; done | sort -u)
targets=("${readers[@]/%/_fuzz}")
for group in $groups; do targets+=("${group}_readers_corpus"); done
cmake --build "$build" --target "${targets[@]}" >"$work/build.log" || { tail -30 "$work/build.log"; exit 1; }
cmake -S . -B "$coverage" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_C_COMPILER=clang-14 \
  -DQKV_PLAIN_GEMM=ON -DQKV_PORTABLE_KERNELS=ON \
  -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping" >/dev/null
for group in $groups; do
  cmake --build "$coverage" --target "${group}_readers_corpus" >"$work/build.log" ||
    { tail -30 "$work/build.log"; exit 1; }
done

declare -A rows
for reader in "${readers[@]}"; do
  inputs=$work/inputs/$reader
  mkdir -p "$inputs"
  group=$(group_of "$reader")
  "$build/tests/fuzz/${group}_readers_corpus" seeds "$reader" "$inputs" >/dev/null
  options=(-runs="$runs" -max_len="${longest[$reader]:-2048}" -timeout=20 -rss_limit_mb=2048
    -artifact_prefix="$work/faults/$reader-")
  [[ ! -f tests/fuzz/$reader.dict ]] || options+=(-dict="tests/fuzz/$reader.dict")
  log=$work/faults/$reader.log
  "$build/tests/fuzz/${reader}_fuzz" "${options[@]}" "$inputs" >"$log" 2>&1 || { tail -40 "$log"; exit 1; }
  rows[$reader]=$(sed -nE 's/^Done ([0-9]+) runs in ([0-9]+) second.*/\1 | \2/p' "$log")
  LLVM_PROFILE_FILE=$work/$group-$reader.profraw "$coverage/tests/fuzz/${group}_readers_corpus" replay "$reader" "$inputs" \
    >/dev/null
  echo "$reader: ${rows[$reader]/ |/ runs,} seconds" >&2
done

# Several readers may use the same file: a line counts if any reader covers it.
for group in $groups; do llvm-profdata-14 merge -o "$work/$group.profdata" "$work/$group"-*.profraw; done
printf '| reader | runs | seconds | lines covered |\n|---|---|---|---|\n'
for reader in "${readers[@]}"; do
  files=()
  for source in ${sources[$reader]}; do files+=("src/$source"); done
  group=$(group_of "$reader")
  reached=$(python3 scripts/reader_coverage.py "$coverage/tests/fuzz/${group}_readers_corpus" "$work/$group.profdata" \
    "${files[@]}" | paste -sd, | sed 's/,/, /g')
  printf '| %s | %s | %s |\n' "$reader" "${rows[$reader]}" "$reached"
done
