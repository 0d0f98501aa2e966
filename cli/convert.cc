// SPDX-License-Identifier: Apache-2.0
// qkv convert: a model from one format to another.
#include <fmt/format.h>

#include <memory>

#include "cli.h"
#include "qkv/model_file.h"

namespace {

using qkv::cli::UsageError;

struct Options {
  std::string source, target, to, type;
  std::int64_t shard_bytes = qkv::HuggingFaceOptions{}.shard_bytes;
};

std::string format_of(const Options& options) {
  if (!options.to.empty()) return options.to;
  return options.target.ends_with(".gguf") ? "gguf" : "qkv";
}

qkv::DType floating_type(const std::string& type) {
  if (type == "f32" || type.empty()) return qkv::DType::f32;
  if (type == "f16") return qkv::DType::f16;
  if (type == "bf16") return qkv::DType::bf16;
  throw UsageError("--type " + type + " is for GGUF files alone; Hugging Face's directories take f32, f16 and bf16");
}

void save(const Options& options, const std::string& format, const qkv::LoadedModel& loaded) {
  if (format == "gguf") {
    qkv::save_gguf(options.target, loaded.model, loaded.tokenizer, options.type.empty() ? "bf16" : options.type);
  } else if (format == "hf") {
    qkv::HuggingFaceOptions hf;
    hf.type = floating_type(options.type);
    hf.shard_bytes = options.shard_bytes;
    hf.end_tokens = loaded.end_tokens;
    qkv::save_hugging_face(options.target, loaded.model, loaded.tokenizer, hf);
  } else {
    if (!options.type.empty() && options.type != "f32")
      throw UsageError("--type " + options.type + " is for --to hf and --to gguf; qkv's own directories hold f32");
    qkv::save_model(options.target, loaded.model, loaded.tokenizer);
  }
}

void run(const Options& options) {
  const std::string format = format_of(options);
  if (format == "hf") floating_type(options.type);  // before the long work
  const qkv::ModelFacts facts = qkv::inspect_model(options.source);
  const qkv::LoadedModel loaded = qkv::load_model(options.source);
  try {
    save(options, format, loaded);
  } catch (const std::invalid_argument& error) {
    throw qkv::cli::UsageError(fmt::format("{} cannot be written so: {}", options.source, error.what()));
  }
  qkv::cli::print(fmt::format("{}: {}, {} parameters\n{}: {}\n", options.source, facts.format,
                              qkv::parameter_count(facts.config), options.target,
                              qkv::inspect_model(options.target).format));
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("convert", "Write a model in another format");
  const auto options = std::make_shared<Options>();
  command->add_option("SRC", options->source, "The model: a directory of qkv or Hugging Face, or a GGUF file")
      ->required();
  command->add_option("DST", options->target, "What to write: a directory, or a file that ends in .gguf")->required();
  command->add_option("--to", options->to, "The format [gguf for names that end so, otherwise qkv]")
      ->check(CLI::IsMember({"qkv", "hf", "gguf"}).description(""))
      ->type_name("qkv|hf|gguf");
  command->add_option("--type", options->type, "How matrices are stored [f32; bf16 in GGUF files]")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"}).description(""))
      ->type_name("f32|f16|bf16|q8_0|q4_0|q4_1");
  command->add_option("--shard-bytes", options->shard_bytes, "The most a file of a Hugging Face directory may hold")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->type_name("N");
  qkv::cli::add_threads_option(*command);
  command->callback([options] { run(*options); });
}

const qkv::cli::Subcommand kConvert(42, add);

}  // namespace
