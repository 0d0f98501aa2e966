#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a small LLaMA-shaped model on the King James text for about a minute and generates text with it. Called by
# `make demo`, which builds the program first. QKV_DEMO_DIR says where everything goes (default: build/demo).
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
  --preset llama-1m --batch-size 8 --steps 900 --learning-rate 3e-3 --warmup-steps 60 --schedule linear --min-lr 1e-4 \
  --log-interval 50 --eval-interval 300 --eval-iters 0 --sample-interval 300 --sample-tokens 50 \
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
Train it further        $qkv train --resume --out $model --steps 1800
Let it write            $qkv generate -m $model -p "And it came to pass"
What it is made of      $qkv info -m $model
For transformers        $qkv convert $model king_james_hf --to hf
For llama.cpp           $qkv convert $model king_james.gguf
Look inside             $qkv inspect -m $model -p "In the beginning God created" --html inspect.html
END
