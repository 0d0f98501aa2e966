#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All checks before a merge: make test, and the coding rules, which need more tools.
#
#   scripts/check.sh           everything
#   scripts/check.sh --rules   only the rules: includes, licence lines, lengths, wording, format, clang-tidy
#   scripts/check.sh --quick   only the rules, format and clang-tidy only of files that differ from the last commit
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
if [[ $# -gt 1 || ! "$mode" =~ ^(|--rules|--quick)$ ]]; then
  echo "usage: check.sh [--rules | --quick]" >&2
  exit 2
fi

scripts/install_deps.sh --all
if [[ -z "$mode" ]]; then
  make test

  echo "== every CPU level, an emulated Haswell; emulated x86-64 without AVX and arm64"
  scripts/check_levels.sh || [[ $? == 3 ]]
  scripts/check_portable.sh || [[ $? == 3 ]]

  echo "== a project that fetches the source, built and run"
  python3 tests/package/package_test.py --fetch --build build/release "$PWD" g++ gcc
fi

if [[ "$mode" == --quick ]]; then
  mapfile -t files < <({ git diff --name-only --diff-filter=d HEAD; git ls-files -o --exclude-standard; } |
    grep -E '\.(h|cc)$' || true)
else
  mapfile -t files < <(git ls-files '*.h' '*.cc')
fi

echo "== includes, licence lines, lengths, wording"
python3 scripts/check_includes.py
python3 scripts/check_files.py

if [[ ${#files[@]} -gt 0 ]]; then
  echo "== format"
  clang-format --dry-run --Werror "${files[@]}"
fi

mapfile -t sources < <(printf '%s\n' "${files[@]}" | grep -E '^(src|cli)/.*\.cc$' || true)
if [[ ${#sources[@]} -gt 0 ]]; then
  echo "== clang-tidy"
  if [[ ! -f build/release/compile_commands.json ]]; then cmake --preset release >/dev/null; fi
  printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet --extra-arg=-Wno-unknown-warning-option -p build/release
fi
echo "all checks passed"
