// SPDX-License-Identifier: Apache-2.0
// qkv generate: generates text from a prompt.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>

#include "cli.h"
#include "lora_options.h"
#include "number_options.h"
#include "qkv/engine.h"
#include "qkv/error.h"
#include "qkv/interrupt.h"
#include "qkv/model_file.h"
#include "read_text.h"
#include "sampler_options.h"
#include "texts_output.h"

namespace {

struct Options {
  std::string model, lora;
  std::optional<std::string> prompt;
  std::string file = "-";
  std::optional<std::string> prompts;  // a file with one prompt per line
  std::int64_t at_once = 16, samples = 1;
  bool json = false;
  std::optional<std::string> prompt_cache, cache_type;
  qkv::cli::WritingOptions writing;
};

std::vector<std::int32_t> prompt_tokens(const std::string& text, const qkv::Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens = tokenizer.encode(text);
  if (tokenizer.begin_token() >= 0) tokens.insert(tokens.begin(), tokenizer.begin_token());
  if (tokens.empty()) {
    if (tokenizer.end_token() < 0) throw qkv::cli::UsageError("the prompt is empty");
    tokens.push_back(tokenizer.end_token());  // the separator of texts, so a new text starts
  }
  return tokens;
}

// The lines of a text without line endings; a final newline adds no empty line.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}

std::vector<std::vector<std::int32_t>> all_prompts(const Options& options, const qkv::Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  if (options.prompts) {
    texts = lines_of(qkv::cli::read_text(*options.prompts, "prompts, one per line,"));
    if (texts.empty()) throw qkv::FileError(*options.prompts, "expected one prompt per line; found an empty file");
  } else {
    texts.push_back(options.prompt ? *options.prompt : qkv::cli::read_text(options.file, "the prompt"));
  }
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::string& text : texts) prompts.push_back(prompt_tokens(text, tokenizer));
  return prompts;
}

std::string speed(const char* what, std::size_t tokens, double seconds) {
  std::string text = fmt::format("{}: {} in ", what, qkv::cli::counted(static_cast<std::int64_t>(tokens), "token"));
  text += seconds < 1 ? fmt::format("{:.0f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
  if (seconds > 0) text += fmt::format(", {:.1f} tokens/s", static_cast<double>(tokens) / seconds);
  return text + "\n";
}

std::string note(const qkv::GenerateResult& result, std::int64_t ctx_len) {
  std::string text;
  if (result.shifts > 0) text = fmt::format("context full ({} tokens); shifts: {}\n", ctx_len, result.shifts);
  switch (result.reason) {
    case qkv::StopReason::context_full:
      return text + fmt::format("stopped: context full ({} tokens); use --shift to continue\n", ctx_len);
    case qkv::StopReason::end_token:
      return text + "stopped: end token\n";
    case qkv::StopReason::stop_string:
      return text + "stopped: stop string\n";
    case qkv::StopReason::callback:
    case qkv::StopReason::cancelled:
      return text + "stopped: interrupted\n";
    case qkv::StopReason::max_tokens:
    case qkv::StopReason::failed:
      break;
  }
  return text;
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Evaluates the prompt, reusing the prompt cache file, and updates the file if it was extended. Returns a report.
std::string read_with_cache(const std::string& path, qkv::Model& model, std::span<const std::int32_t> prompt,
                            qkv::TextContext& context, std::optional<qkv::DType> type) {
  const Clock::time_point begin = Clock::now();
  if (type) context.state = model.make_state(*type);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) qkv::load_prompt_cache(path, model, context);
  const std::vector<std::int32_t> held = context.tokens;
  const auto read = static_cast<std::size_t>(qkv::prefill(model, prompt, context, type));
  const bool cached_all = held.size() >= prompt.size() && std::equal(prompt.begin(), prompt.end(), held.begin());
  if (!cached_all) qkv::save_prompt_cache(path, model, context);
  return fmt::format("prompt cache: {} tokens from the file, {} evaluated{}, {:.2f} s\n", prompt.size() - read, read,
                     cached_all ? "" : ", saved", seconds_since(begin));
}

void report(const std::vector<qkv::GenerateResult>& results, double seconds) {
  std::size_t read = 0, written = 0;
  for (const qkv::GenerateResult& result : results) {
    read += static_cast<std::size_t>(result.prompt_evaluated);
    written += result.tokens.size();
  }
  qkv::cli::print_error(fmt::format("prompts: {} tokens evaluated\n", read) +
                        speed(fmt::format("{} texts", results.size()).c_str(), written, seconds) +
                        (qkv::interrupt_requested() ? "stopped: interrupted\n" : ""));
}

// Text i is sample i % samples of prompt i / samples.
std::vector<qkv::GenerateResult> generate_all(qkv::Engine& engine, const Options& options,
                                              const std::vector<std::vector<std::int32_t>>& prompts,
                                              const qkv::GenerateOptions& generate, qkv::cli::TextsOutput& output) {
  for (const std::vector<std::int32_t>& prompt : prompts) engine.check(prompt, generate);
  std::vector<qkv::GenerateResult> results(prompts.size() * static_cast<std::size_t>(options.samples));
  const auto texts = static_cast<std::int64_t>(results.size());
  std::int64_t next = 0;
  const auto submit = [&](std::int64_t text) {
    qkv::GenerateOptions of = generate;
    of.sampler.stream += static_cast<std::uint64_t>(text % options.samples);
    engine.submit(prompts[static_cast<std::size_t>(text / options.samples)], of,
                  [&, text](const qkv::EngineEvent& event) {
                    output.push(text, event.text);
                    if (event.result == nullptr) return true;
                    if (event.result->error) std::rethrow_exception(event.result->error);
                    results[static_cast<std::size_t>(text)] = *event.result;
                    output.end(text, *event.result);
                    return true;
                  });
  };
  qkv::cli::run_engine(engine, [&] {
    for (; next < texts && engine.waiting() < options.at_once; ++next) submit(next);
    return next < texts;
  });
  return results;
}

void run(const Options& options) {
  qkv::GenerateOptions generate = qkv::cli::checked_options(options.writing);
  // Adapters are merged into f32 parameters; without them weights keep their stored type.
  if (!options.lora.empty() && options.writing.dtype != "auto")
    throw qkv::cli::UsageError("--dtype cannot be used with --lora, which computes in f32");
  qkv::LoadedModel loaded = options.lora.empty()
                                ? qkv::cli::load_for_generation(options.model, options.writing)
                                : qkv::cli::load_with_adapters(options.model, options.lora, options.writing.device);
  const std::vector<std::vector<std::int32_t>> prompts = all_prompts(options, loaded.tokenizer);
  generate.end_tokens = loaded.end_tokens;
  qkv::cli::require_known_tokens(generate, loaded);
  qkv::EngineOptions engine_options{.slots = options.at_once, .queue = options.at_once, .chunk = 2048};
  if (options.cache_type) engine_options.cache_type = qkv::dtype_from_name(*options.cache_type);
  // The samples of a prompt share its cache, and a prompt cache file is shared too.
  if (options.samples > 1 || options.prompt_cache)
    engine_options.prefix_bytes = qkv::request_bytes(loaded.model, engine_options.cache_type);
  qkv::Engine engine(loaded.model, engine_options, &loaded.tokenizer);
  if (options.prompt_cache) {
    qkv::TextContext cached;
    qkv::cli::print_error(
        read_with_cache(*options.prompt_cache, loaded.model, prompts[0], cached, engine_options.cache_type));
    engine.add_prefix(std::move(cached));
  }

  using Form = qkv::cli::TextsOutput::Form;
  const std::int64_t texts = static_cast<std::int64_t>(prompts.size()) * options.samples;
  const bool one = texts == 1 && !options.prompts;
  qkv::cli::TextsOutput output(options.json ? Form::json : one ? Form::plain : Form::titled, texts, options.samples);
  qkv::install_interrupt_latch();
  const Clock::time_point begin = Clock::now();
  const std::vector<qkv::GenerateResult> results = generate_all(engine, options, prompts, generate, output);
  if (texts > 1) return report(results, seconds_since(begin));
  qkv::cli::print_error(
      speed("prompt", static_cast<std::size_t>(results[0].prompt_evaluated), results[0].prompt_seconds) +
      speed("generation", results[0].tokens.size(), results[0].generate_seconds) +
      note(results[0], loaded.model.config().ctx_len));
}

void add_prompts(CLI::App& command, Options& options) {
  qkv::cli::add_model_option(command, options.model);
  CLI::Option* prompt = command.add_option("-p,--prompt", options.prompt, "Prompt")->type_name("TEXT");
  CLI::Option* file =
      command.add_option("-f,--file", options.file, "File with the prompt [standard input; Ctrl-D ends it]")
          ->type_name("FILE")
          ->excludes(prompt);
  command.add_option("--prompts", options.prompts, "File with one prompt per line (- = standard input)")
      ->type_name("FILE")
      ->excludes(prompt)
      ->excludes(file);
  command.add_option("--prompt-cache", options.prompt_cache, "File that stores the prompt's KV cache for reuse")
      ->type_name("FILE")
      ->excludes("--prompts");
  qkv::cli::add_dtype_option(command, options.writing);
  command.add_option("--cache-type", options.cache_type, "KV cache data type [the compute dtype]")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "q8_0"}))
      ->type_name("TYPE");
  qkv::cli::add_number(command, "-b,--batch-size", options.at_once, "Sequences generated in parallel")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  qkv::cli::add_number(command, "--samples", options.samples, "Samples per prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Generate text from a prompt");
  const auto options = std::make_shared<Options>();
  qkv::cli::add_lora_option(*command, options->lora);
  add_prompts(*command, *options);
  qkv::cli::add_max_tokens_option(*command, options->writing,
                                  "Maximum number of new tokens; -1 = until the context is full");
  qkv::cli::add_sampler_options(*command, options->writing);
  qkv::cli::add_shift_options(*command, options->writing, "");
  command->add_flag("--json", options->json, "One JSON object per line and text");
  qkv::cli::add_threads_option(*command);
  command->callback([options] { run(*options); });
}

const qkv::cli::Subcommand kGenerate(30, add);

}  // namespace
