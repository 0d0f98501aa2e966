#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What bf16 operands cost in loss: trains the demo's model on the King James text with f32 and with bf16 operands from
# three seeds, and prints the validation losses and their difference. About a minute a run.
#
#   scripts/bf16_loss.sh [STEPS]     (500)
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-500}
qkv=${QKV:-build/release/qkv}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bible -f "gen1:1-rev22:21" >"$work/text.txt"
loss() {  # dtype seed
  "$qkv" train --data "$work/text.txt" --out "$work/$1-$2" --tokenizer bpe:2048 --n-layer 4 --n-head 4 --d-model 128 \
    --ctx-len 128 --batch-size 16 --steps "$steps" --learning-rate 3e-3 --warmup-steps 40 --schedule linear --min-lr 1e-4 \
    --dtype "$1" --seed "$2" --eval-interval "$steps" \
    --eval-iters 0 --sample-interval 0 --checkpoint-interval 0 | sed -n 's/.*validation loss \([0-9.]*\) .*/\1/p' | tail -1
}
echo "seed  f32      bf16     difference"
for seed in 1 2 3; do
  a=$(loss f32 "$seed") b=$(loss bf16 "$seed")
  printf '%4d  %s   %s   %s\n' "$seed" "$a" "$b" "$(python3 -c "print(f'{$b - $a:+.4f}')")"
done
