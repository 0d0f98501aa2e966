// SPDX-License-Identifier: Apache-2.0
// qkv eval: loss, perplexity and bits per byte of a model on text.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cli.h"
#include "common_options.h"
#include "corpus_options.h"
#include "lora_options.h"
#include "qkv/error.h"
#include "qkv/evaluate.h"
#include "qkv/interrupt.h"
#include "qkv/model_file.h"
#include "train_progress.h"

namespace {

namespace fs = std::filesystem;
using namespace qkv::cli;

struct Options {
  std::string model, lora, device;
  std::vector<std::string> data;
  std::string part = "all";
  TextOptions text;
  qkv::EvaluateOptions evaluate;
  bool json = false;
};

qkv::TextLoss of_tokens(const Options& options, qkv::LoadedModel& loaded, const std::string& path,
                        const qkv::EvaluateProgress& progress) {
  const qkv::TokenDataset data = qkv::TokenDataset::open(path);
  const auto tokenizer = data.tokenizer();
  if (data.vocab_size() > loaded.model.config().vocab_size ||
      (tokenizer && tokenizer->json() != loaded.tokenizer.json())) {
    throw qkv::FileError(path, "was made with a different tokenizer than the model's");
  }
  qkv::TextLoss total;
  for (const bool training : {true, false}) {
    if (options.part == (training ? "validation" : "training")) continue;
    const qkv::TokenPart& part = training ? data.training() : data.validation();
    const qkv::TextLoss loss = qkv::evaluate(loaded.model, part, options.evaluate, progress);
    total.nats += loss.nats;
    total.predicted += loss.predicted;
    total.tokens += loss.tokens;
    total.bytes += loss.bytes;
  }
  return total;
}

std::string report(const qkv::TextLoss& loss, double seconds) {
  return fmt::format(
      "loss           {:.4f} nats per token\nperplexity     {:.3f}\nbits per byte  {:.4f}\n"
      "{} tokens predicted, {} bytes, {:.1f} s, {:.0f} tokens/s\n",
      loss.loss(), loss.perplexity(), loss.bits_per_byte(), loss.predicted, loss.bytes, seconds,
      static_cast<double>(loss.predicted) / seconds);
}

std::string json_report(const qkv::TextLoss& loss, double seconds) {
  const auto number = [](double value) { return std::isfinite(value) ? nlohmann::ordered_json(value) : nullptr; };
  nlohmann::ordered_json json;
  json["loss"] = number(loss.loss());
  json["perplexity"] = number(loss.perplexity());
  json["bits_per_byte"] = number(loss.bits_per_byte());
  json["predicted"] = loss.predicted;
  json["tokens"] = loss.tokens;
  json["bytes"] = loss.bytes;
  json["seconds"] = seconds;
  return json.dump() + "\n";
}

void run(const Options& options) {
  const std::optional<std::string> tokens = token_file(options.data);
  if (!tokens && options.part != "all") throw UsageError("--part is for token files; text is not split");
  qkv::install_interrupt_latch();
  qkv::LoadedModel loaded = load_with_adapters(options.model, options.lora, options.device);
  Progress bar("evaluating", 0, true);
  const qkv::EvaluateProgress progress = [&](std::int64_t done, std::int64_t total) {
    if (qkv::interrupt_requested()) throw std::runtime_error("interrupted");
    bar.update(static_cast<double>(done), static_cast<double>(total));
  };
  const auto of_text = [&] {
    const qkv::Corpus corpus =
        read_texts(options.data, corpus_options(options.text, 0, fs::temp_directory_path().string()));
    note_end_token_as_text(corpus, loaded.tokenizer);
    const qkv::TextLoss loss = qkv::evaluate(loaded.model, loaded.tokenizer, corpus, options.evaluate, progress);
    bar.hide();
    warn_of_bad_lines(corpus);
    return loss;
  };
  const qkv::TextLoss loss = tokens ? of_tokens(options, loaded, *tokens, progress) : of_text();
  bar.hide();
  if (loss.predicted == 0) {
    throw qkv::FileError(
        options.data.front(),
        fmt::format("expected at least two tokens, one as context and one to predict; found {}", loss.tokens));
  }
  print(options.json ? json_report(loss, bar.seconds()) : report(loss, bar.seconds()));
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Evaluate a model on text: loss, perplexity, bits per byte");
  const auto options = std::make_shared<Options>();
  command->add_option("-m,--model", options->model, "Model: directory, GGUF file or ANDREA checkpoint")
      ->required()
      ->type_name("PATH");
  add_lora_option(*command, options->lora);
  add_device_option(*command, options->device);
  command
      ->add_option("--data", options->data,
                   "Text files, .jsonl files, directories, - for standard input, or a token file")
      ->required()
      ->type_name("FILE|DIR...");
  add_choice(*command, "--part", options->part, {"all", "training", "validation"}, "Split of a token file");
  add_text_options(*command, options->text, "Options");
  add_number(*command, "--ctx-len", options->evaluate.ctx, "Tokens per window [the model's context]")
      ->check(at_least(1))
      ->type_name("N");
  add_number(*command, "--stride", options->evaluate.stride,
             "Tokens between window starts [ctx-len]; smaller = more context")
      ->check(at_least(1))
      ->type_name("N");
  add_count(*command, "--batch-size", options->evaluate.batch_size, 1, "Windows per batch");
  command->add_flag("--json", options->json, "Print one JSON object");
  add_threads_option(*command);
  command->callback([options] { run(*options); });
}

const Subcommand kEval(35, add);

}  // namespace
