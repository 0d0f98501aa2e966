#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Grows a small ANDREA-shaped model on the King James text for about a minute and lets it write. Called by `make demo`,
# which builds the program first. QKV_DEMO_DIR says where everything goes (default: build/demo).
set -euo pipefail
cd "$(dirname "$0")/.."
qkv=build/release/qkv
folder=${QKV_DEMO_DIR:-build/demo}
prompt=${QKV_DEMO_PROMPT:-"In the beginning God created"}

[ -x "$qkv" ] || { echo "demo: $qkv is not there; make demo builds it" >&2; exit 1; }
command -v bible >/dev/null || { echo "demo: the packages bible-kjv and bible-kjv-text are needed" >&2; exit 1; }

say() { printf '\n== %s\n' "$*"; }

mkdir -p "$folder"
text=$folder/king_james.txt
model=$folder/model
rm -rf "$model"

say "The text: $text"
bible -f "gen1:1-rev22:21" >"$text"
head -n 2 "$text"
echo "... $(wc -c <"$text") bytes"

say "Tokens: $folder/tokens.bin"
"$qkv" tokenize --data "$text" --tokenizer bpe:2048 --out "$folder/tokens.bin"

say "Training: $model"
"$qkv" train --data "$folder/tokens.bin" --out "$model" \
  --n-layer 4 --n-head 4 --d-model 128 --ctx-len 128 --batch-size 16 \
  --steps 600 --learning-rate 3e-3 --warmup-steps 40 --schedule linear --min-lr 1e-4 \
  --log-interval 50 --eval-interval 200 --eval-iters 0 --sample-interval 200 --sample-tokens 50 \
  --sample-prompt "$prompt"

say "How well the best model predicts what it has not seen: $qkv eval -m $model/best --part validation"
"$qkv" eval -m "$model/best" --data "$folder/tokens.bin" --part validation

say "Writing: $qkv generate -m $model -p \"$prompt\""
"$qkv" generate -m "$model" -p "$prompt" -n 100 -s 1

say "Where everything is"
cat <<END
text                    $text
model, to pass on       $model (config.json, model.safetensors, tokenizer.json)
best validation model   $model/best
loss of every step      $model/metrics.jsonl
the run as a page       $model/report.html
Train it further        $qkv train --resume --out $model --steps 1200
Let it write            $qkv generate -m $model -p "And it came to pass"
What it is made of      $qkv info -m $model
Look inside             $qkv inspect -m $model -p "In the beginning God created" --html inspect.html
END
