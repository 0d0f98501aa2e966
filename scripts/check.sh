#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that must hold before a change goes in: what continuous integration does (make test), and the rules of the
# house that need more tools.
#
#   scripts/check.sh           all of it
#   scripts/check.sh --quick   the rules alone, on the files that differ from the last commit
set -euo pipefail
cd "$(dirname "$0")/.."

quick=0
if [[ "${1:-}" == --quick ]]; then
  quick=1
elif [[ $# -gt 0 ]]; then
  echo "usage: check.sh [--quick]" >&2
  exit 2
fi

scripts/install_deps.sh --all
if [[ $quick == 0 ]]; then
  make test
  mapfile -t files < <(git ls-files '*.h' '*.cc')
else
  mapfile -t files < <({ git diff --name-only --diff-filter=d HEAD; git ls-files -o --exclude-standard; } |
    grep -E '\.(h|cc)$' || true)
fi

if [[ $quick == 0 ]]; then
  echo "== every level of this processor, an emulated Haswell; x86-64 without AVX and arm64, emulated"
  scripts/check_levels.sh || [[ $? == 3 ]]
  scripts/check_portable.sh || [[ $? == 3 ]]

  echo "== a project that fetches the source, built and run"
  python3 tests/package/package_test.py --fetch --build build/release "$PWD" g++ gcc
fi

echo "== includes, licence lines, lengths"
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
