#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The loss penalty of bf16: trains the demo model on the King James text in f32 and in bf16 with several seeds and
# prints the validation losses and their difference. About a minute per run.
#
# Training is chaotic: a change of the last bits grows until it affects the final loss. As a baseline, a third run per
# seed trains in f32 with a learning rate larger by a millionth.
#
#   scripts/bf16_loss.sh [STEPS [SEEDS]]     (500 3)
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-500} seeds=${2:-3}
qkv=${QKV:-build/release/qkv}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bible -f "gen1:1-rev22:21" >"$work/text.txt"
loss() {  # dtype rate seed
  "$qkv" train --data "$work/text.txt" --out "$work/$1-$2-$3" --tokenizer bpe:2048 --preset andrea-12m --n-layer 4 --n-head 4 --d-model 128 \
    --ctx-len 128 --batch-size 16 --steps "$steps" --learning-rate "$2" --warmup-steps 40 --schedule linear --min-lr 1e-4 \
    --dtype "$1" --seed "$3" --eval-interval "$steps" \
    --eval-iters 0 --sample-interval 0 --checkpoint-interval 0 | sed -n 's/.*validation loss \([0-9.]*\) .*/\1/p' | tail -1
}
echo "seed  f32      f32, rate x 1.000001   bf16"
for seed in $(seq "$seeds"); do
  printf '%4d  %s   %s                 %s\n' "$seed" "$(loss f32 3e-3 "$seed")" "$(loss f32 3.000003e-3 "$seed")" \
    "$(loss bf16 3e-3 "$seed")"
done | tee "$work/losses"
python3 - "$work/losses" <<'PY'
import statistics, sys
rows = [[float(x) for x in line.split()[1:]] for line in open(sys.argv[1])]
f32 = [(a + b) / 2 for a, b, _ in rows]
apart = [b - a for a, b, _ in rows]
bf16 = [c for _, _, c in rows]
difference = [c - a for c, a in zip(bf16, f32)]
error = statistics.stdev(difference) / len(rows) ** 0.5 if len(rows) > 1 else float("nan")
print(f"bf16 - f32: {statistics.mean(difference):+.4f} nats, standard error {error:.4f}")
print("f32 - f32: " + " ".join(f"{x:+.4f}" for x in apart) + " nats")
PY
