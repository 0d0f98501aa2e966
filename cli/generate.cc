// SPDX-License-Identifier: Apache-2.0
// qkv generate: a model goes on from a prompt.
#include "qkv/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "cli.h"
#include "qkv/error.h"
#include "qkv/interrupt.h"
#include "qkv/model_file.h"

namespace {

struct Options {
  std::string model;
  std::optional<std::string> prompt;
  std::string file = "-";
  qkv::GenerateOptions generate;
};

std::string read_all(const std::string& path) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : path;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      standard ? stdin : std::fopen(path.c_str(), "rb"), [](std::FILE* f) { return f == stdin ? 0 : std::fclose(f); });
  if (!file) throw qkv::FileError(name, std::string("cannot be opened: ") + std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  std::size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof buffer, file.get())) > 0) text.append(buffer, count);
  if (std::ferror(file.get())) throw qkv::FileError(name, std::string("cannot be read: ") + std::strerror(errno));
  return text;
}

std::vector<std::int32_t> prompt_tokens(const Options& options, const qkv::Tokenizer& tokenizer) {
  const std::string text = options.prompt ? *options.prompt : read_all(options.file);
  std::vector<std::int32_t> tokens = tokenizer.encode(text);
  if (tokenizer.begin_token() >= 0) tokens.insert(tokens.begin(), tokenizer.begin_token());
  if (tokens.empty()) {
    if (tokenizer.end_token() < 0) throw qkv::cli::UsageError("the prompt is empty");
    tokens.push_back(tokenizer.end_token());  // what stands between two texts: the beginning of a new one
  }
  return tokens;
}

std::string speed(const char* what, std::size_t tokens, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  return fmt::format("{}: {} tokens in {:.2f} s, {:.1f} tokens/s\n", what, tokens, seconds, rate);
}

std::string note(const qkv::GenerateResult& result, std::int64_t ctx_len) {
  switch (result.reason) {
    case qkv::StopReason::context_full:
      return fmt::format("stopped: the context of {} tokens is full\n", ctx_len);
    case qkv::StopReason::end_token:
      return "stopped: the model ended the text\n";
    case qkv::StopReason::callback:
      return "stopped: interrupted\n";
    case qkv::StopReason::max_tokens:
      break;
  }
  return "";
}

void run(const Options& options) {
  try {
    const qkv::Sampler check(options.generate.sampler);
  } catch (const std::invalid_argument& error) {
    throw qkv::cli::UsageError(error.what());
  }
  qkv::LoadedModel loaded = qkv::load_model(options.model);
  const std::vector<std::int32_t> prompt = prompt_tokens(options, loaded.tokenizer);
  qkv::GenerateOptions generate = options.generate;
  generate.end_tokens = loaded.end_tokens;
  generate.vocab_limit = std::min(loaded.tokenizer.size(), loaded.model.config().vocab_size);

  qkv::install_interrupt_latch();
  qkv::Utf8Stream stream;
  bool line_open = false;
  const auto show = [&](const std::string& text) {
    if (text.empty()) return;
    qkv::cli::print(text);
    line_open = text.back() != '\n';
  };
  const qkv::GenerateResult result = qkv::generate(loaded.model, prompt, generate, [&](std::int32_t token) {
    show(stream.push(loaded.tokenizer.decode(token)));
    return !qkv::interrupt_requested();
  });
  show(stream.flush());
  if (line_open) qkv::cli::print("\n");
  qkv::cli::print_error(speed("prompt", prompt.size(), result.prompt_seconds) +
                        speed("generation", result.tokens.size(), result.generate_seconds) +
                        note(result, loaded.model.config().ctx_len));
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Let a model go on from a prompt");
  const auto options = std::make_shared<Options>();
  qkv::SamplerOptions& sampler = options->generate.sampler;
  command->add_option("-m,--model", options->model, "Model directory")->required()->type_name("DIR");
  CLI::Option* prompt =
      command->add_option("-p,--prompt", options->prompt, "The text to go on from")->type_name("TEXT");
  command
      ->add_option("-f,--file", options->file,
                   "A file that holds it, byte for byte; without -p and -f, or with -, standard input")
      ->type_name("FILE")
      ->excludes(prompt);
  command->add_option("-n,--max-tokens", options->generate.max_tokens, "Tokens to generate at most")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  command->add_option("--temp,--temperature", sampler.temperature, "0 always takes the most probable token")
      ->capture_default_str()
      ->type_name("T");
  command->add_option("--top-k", sampler.top_k, "Draw from the K most probable tokens; 0 is all")
      ->capture_default_str()
      ->type_name("K");
  command->add_option("--top-p", sampler.top_p, "Draw from the fewest tokens whose probabilities reach P together")
      ->capture_default_str()
      ->type_name("P");
  command->add_option("--min-p", sampler.min_p, "Draw from tokens at least P times as probable as the most probable")
      ->capture_default_str()
      ->type_name("P");
  command->add_option("--repeat-penalty", sampler.repeat_penalty, "Above 1: tokens of the context become less probable")
      ->capture_default_str()
      ->type_name("R");
  command->add_option("-s,--seed", sampler.seed, "The same seed gives the same text")
      ->capture_default_str()
      ->type_name("SEED");
  qkv::cli::add_threads_option(*command);
  command->callback([options] { run(*options); });
}

const qkv::cli::Subcommand kGenerate(30, add);

}  // namespace
