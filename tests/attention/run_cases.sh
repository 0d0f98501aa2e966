#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the shared attention cases through `qkv attend`: run_cases.sh QKV_BINARY DEFAULT_CASES_DIR [OPTION...]
# QKV_CASES_DIR names another folder of cases. Without cases or NumPy it prints the reason and exits with 77 (skipped).
binary=$1
cases=${QKV_CASES_DIR:-$2}
shift 2
python=/usr/bin/python3
if [ ! -f "$cases/run_cases.py" ]; then
  echo "SKIPPED: no cases in $cases (QKV_CASES_DIR names the folder with run_cases.py)"
  exit 77
fi
if ! "$python" -c 'import numpy' 2>/dev/null; then
  echo "SKIPPED: $python has no numpy (Debian: python3-numpy)"
  exit 77
fi
exec "$python" "$cases/run_cases.py" "$binary" "$cases" "$@"
