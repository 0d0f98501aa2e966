#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a small LLaMA-shaped model on the King James text for about a minute and generates text with it. Called by
# `make demo`, which builds the program first. QKV_DEMO_DIR is the output directory (default: build/demo).
set -euo pipefail
cd "$(dirname "$0")/.."
qkv=build/release/qkv
folder=${QKV_DEMO_DIR:-build/demo}
prompt=${QKV_DEMO_PROMPT:-"In the beginning God created"}

[ -x "$qkv" ] || { echo "demo: $qkv does not exist; build it with make demo" >&2; exit 1; }
command -v bible >/dev/null || { echo "demo: needs the packages bible-kjv and bible-kjv-text" >&2; exit 1; }

say() { printf '\n== %s\n' "$*"; }

mkdir -p "$folder"
text=$folder/king_james.txt
model=$folder/model
rm -rf "$model"

say "Text: $text"
bible -f "gen1:1-rev22:21" >"$text"
head -n 2 "$text"
echo "... $(wc -c <"$text") bytes"

say "Tokens: $folder/tokens.bin"
"$qkv" tokenize --data "$text" --tokenizer bpe:2048 --out "$folder/tokens.bin"

say "Training: $model"
"$qkv" train --data "$folder/tokens.bin" --out "$model" \
  --preset llama-1m --batch-size 8 --steps 900 --learning-rate 3e-3 --warmup-steps 60 --schedule linear --min-lr 1e-4 \
  --log-interval 50 --eval-interval 300 --eval-iters 0 --sample-interval 300 --sample-tokens 50 \
  --sample-prompt "$prompt"

say "Evaluating the best model on the validation split: $qkv eval -m $model/best --part validation"
"$qkv" eval -m "$model/best" --data "$folder/tokens.bin" --part validation

say "Generating: $qkv generate -m $model -p \"$prompt\""
"$qkv" generate -m "$model" -p "$prompt" -n 100 -s 1

say "Files and next steps"
cat <<END
text                    $text
model                   $model (config.json, model.safetensors, tokenizer.json)
best validation model   $model/best
metrics of every step   $model/metrics.jsonl
report                  $model/report.html
Continue training       $qkv train --resume --out $model --steps 1800
Generate text           $qkv generate -m $model -p "And it came to pass"
Show the configuration  $qkv info -m $model
Export for transformers $qkv convert $model king_james_hf --to hf
Export for llama.cpp    $qkv convert $model king_james.gguf
Inspect attention       $qkv inspect -m $model -p "In the beginning God created" --html inspect.html
END
