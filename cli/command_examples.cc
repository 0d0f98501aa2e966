// SPDX-License-Identifier: Apache-2.0
#include "command_examples.h"

namespace qkv::cli {
namespace {

struct Examples {
  const char *command, *text;
};

constexpr Examples kExamples[] = {
    {"tokenize", R"(
  qkv tokenize --data book.txt --tokenizer bpe:4096 --out tokens.bin
  qkv tokenize --data src/ --tokenizer my_model --out tokens.bin
  zcat pages.jsonl.gz | qkv tokenize --data - --format jsonl --field body --tokenizer bpe:32768 --out tokens.bin)"},
    {"train", R"(
  qkv train --data book.txt --out my_model
  qkv train --data tokens.bin --preset andrea-120m --batch-size 4 --grad-accum 8 --out my_model
  qkv train --resume --out my_model --steps 4000
  qkv train --init model.gguf --lora 8 --data book.txt --seq-len 256 --out adapters)"},
    {"report", R"(
  qkv report my_model)"},
    {"generate", R"(
  qkv generate -m my_model -p "Once upon a time"
  qkv generate -m model.gguf -p "1, 2, 3," -n 30 --temp 0 --stop ", 7"
  qkv generate -m my_model --prompts prompts.txt --samples 4 --json)"},
    {"chat", R"(
  qkv chat -m model.gguf
  qkv chat -m model.gguf --system "Answer in one sentence." --temp 0)"},
    {"eval", R"(
  qkv eval -m my_model --data book.txt
  qkv eval -m my_model --data tokens.bin --part validation --stride 128)"},
    {"info", R"(
  qkv info my_model
  qkv info --preset gpt2 --json)"},
    {"convert", R"(
  qkv convert my_model my_model.gguf --type q8_0
  qkv convert my_model my_model_hf --to hf --type bf16
  qkv convert model.gguf merged --lora adapters)"},
    {"verify", R"(
  qkv verify my_model
  qkv verify my_model/model.safetensors)"},
    {"explain", R"(
  qkv explain --ctx 16 --d-model 512 --n-head 8
  qkv explain --preset andrea-120m
  qkv explain --numbers
  qkv explain --scaling --svg scaling.svg)"},
    {"inspect", R"(
  qkv inspect -m my_model -p "Once upon a time" --layer 2 --head 2
  qkv inspect -m my_model -f text.txt --tokens 256 --html page.html --save arrays
  qkv inspect -m my_model -p "Once upon a time" --ablate 2.2
  qkv inspect -m my_model --scores)"},
    {"devices", R"(
  qkv devices
  qkv devices --json)"},
};

}  // namespace

void add_examples(CLI::App& app) {
  for (const Examples& examples : kExamples) {
    CLI::App* command = app.get_subcommand(examples.command);
    command->footer(command->get_footer() + "\nExamples" + examples.text);
  }
}

}  // namespace qkv::cli
