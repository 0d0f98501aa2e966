#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills a training run 200 times with SIGKILL, half of them inside the system calls that write its files and half at
# random times, resumes it each time and compares the result bit for bit with an uninterrupted run.
#
#   scripts/kill_test.sh [COUNT] [PROGRAM]     COUNT kills (200) of PROGRAM (build/release/qkv)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=${2:-$root/build/release/qkv}
[[ -x "$program" ]] || { echo "$program does not exist: run make build" >&2; exit 2; }
exec python3 "$root/tests/train/kill_test.py" "$program" "${1:-200}"
