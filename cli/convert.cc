// SPDX-License-Identifier: Apache-2.0
// qkv convert: converts a model to another format.
#include <fmt/format.h>

#include <filesystem>

#include <memory>
#include <optional>
#include <string_view>

#include "andrea_options.h"
#include "cli.h"
#include "common_options.h"
#include "lora_options.h"
#include "output_paths.h"
#include "qkv/andrea.h"
#include "qkv/model_file.h"

namespace {

using qkv::cli::is_andrea_checkpoint;
using qkv::cli::UsageError;

struct Options {
  std::string source, target, to, type, lora;
  std::int64_t shard_bytes = qkv::HuggingFaceOptions{}.shard_bytes;
  qkv::cli::AndreaOptions andrea;  // of an ANDREA checkpoint
};

std::string format_of(const Options& options) {
  if (!options.to.empty()) return options.to;
  if (is_andrea_checkpoint(options.target)) return "andrea";
  return options.target.ends_with(".gguf") ? "gguf" : "qkv";
}

const char* name_of(const std::string& format) {
  if (format == "hf") return "a Hugging Face directory";
  if (format == "gguf") return "a GGUF file";
  return format == "andrea" ? "an ANDREA checkpoint" : "a qkv directory";
}

qkv::DType floating_type(const std::string& type) {
  if (type == "f32" || type.empty()) return qkv::DType::f32;
  if (type == "f16") return qkv::DType::f16;
  if (type == "bf16") return qkv::DType::bf16;
  throw UsageError("--type " + type + " is only for GGUF files; Hugging Face directories support f32, f16 and bf16");
}

void save(const Options& options, const std::string& format, const qkv::LoadedModel& loaded) {
  if (format == "gguf") {
    qkv::save_gguf(options.target, loaded.model, loaded.tokenizer, options.type.empty() ? "bf16" : options.type,
                   loaded.text_facts());
    if (loaded.end_tokens.size() > qkv::gguf_end_tokens)
      qkv::cli::print(
          fmt::format("note: GGUF stores {} of the {} end tokens\n", qkv::gguf_end_tokens, loaded.end_tokens.size()));
  } else if (format == "hf") {
    qkv::HuggingFaceOptions hf;
    hf.type = floating_type(options.type);
    hf.shard_bytes = options.shard_bytes;
    hf.facts = loaded.text_facts();
    qkv::save_hugging_face(options.target, loaded.model, loaded.tokenizer, hf);
  } else {
    if (!options.type.empty() && options.type != "f32")
      throw UsageError("--type " + options.type + " is for --to hf and --to gguf; qkv directories are f32");
    qkv::save_model(options.target, loaded.model, loaded.tokenizer, loaded.text_facts());
  }
}

void save_checkpoint(const Options& options, const qkv::LoadedModel& loaded,
                     const std::optional<qkv::AdamState>& state) {
  const qkv::AdamState adam = state.value_or(qkv::AdamState{});
  const bool described = is_andrea_checkpoint(options.source);  // then the options describe the source
  const qkv::AndreaLayout layout = described ? qkv::AndreaLayout{} : layout_of(options.andrea, {});
  qkv::save_andrea(options.target, loaded.model, loaded.tokenizer, layout, adam.step, adam.first_moments,
                   adam.second_moments);
  if (!loaded.chat_template.empty()) qkv::cli::print("note: the chat template is not stored in an ANDREA checkpoint\n");
  if (!state) qkv::cli::print("note: the source has no AdamW state; the checkpoint contains zeros\n");
}

void write(const Options& options, const std::string& format, const qkv::LoadedModel& loaded,
           const std::optional<qkv::AdamState>& state) {
  try {
    if (format == "andrea") return save_checkpoint(options, loaded, state);
    save(options, format, loaded);
  } catch (const std::invalid_argument& error) {
    std::string_view why = error.what();
    if (why.starts_with('[')) why.remove_prefix(why.find("] ") + 2);  // "[gguf]" is redundant
    throw UsageError(fmt::format("cannot export {} as {}: {}", options.source, name_of(format), why));
  }
  if (state && format == "qkv") qkv::save_adam_state(options.target, loaded.model, *state);
  if (state && format != "qkv") qkv::cli::print("note: this format does not store the AdamW state\n");
}

void run(const Options& options) {
  const std::string format = format_of(options);
  qkv::cli::check_outputs({options.source, options.lora}, {{"DST", options.target}});
  if (format == "hf") floating_type(options.type);  // before the long work
  if (format == "andrea" && !options.type.empty() && options.type != "f32")
    throw UsageError("--type " + options.type + " is for --to hf and --to gguf; ANDREA checkpoints are f32");
  if (options.andrea.given() && format != "andrea" && !is_andrea_checkpoint(options.source))
    throw UsageError(options.andrea.names() + " apply only to ANDREA checkpoints (.bin)");
  std::string what;
  std::int64_t count = 0;
  const bool with_lora = !options.lora.empty();  // the AdamW state, if any, then belongs to another model
  if (is_andrea_checkpoint(options.source)) {
    qkv::AndreaCheckpoint checkpoint = load_andrea_checkpoint(options.source, options.andrea, true);
    what = fmt::format("ANDREA checkpoint of step {} ({}; matrices {})", checkpoint.step, checkpoint.layout.order,
                       checkpoint.layout.out_in ? "[out, in]" : "[in, out]");
    count = qkv::parameter_count(checkpoint.model.config());
    std::optional<qkv::AdamState> state =
        qkv::AdamState{checkpoint.step, std::move(checkpoint.first_moments), std::move(checkpoint.second_moments)};
    if (with_lora) state.reset();
    qkv::cli::add_adapters(checkpoint.model, options.lora);
    write(options, format, {std::move(checkpoint.model), std::move(checkpoint.tokenizer), {}}, state);
  } else {
    what = qkv::inspect_model(options.source).format;
    qkv::LoadedModel loaded = qkv::load_model(options.source);
    qkv::cli::add_adapters(loaded.model, options.lora);
    count = qkv::parameter_count(loaded.model.config());
    const auto state = with_lora ? std::nullopt : qkv::load_adam_state(options.source, loaded.model);
    if (!with_lora && !state && std::filesystem::exists(options.source + "/optimizer.safetensors"))
      qkv::cli::print("note: the optimizer state is not AdamW's and is not converted\n");
    write(options, format, loaded, state);
  }
  qkv::cli::print(fmt::format("{}: {}, {} parameters\n{}: {}\n", options.source, what, count, options.target,
                              qkv::inspect_model(options.target).format));
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("convert", "Convert a model to another format");
  const auto options = std::make_shared<Options>();
  command->add_option("SRC", options->source, "Model: directory, GGUF file or ANDREA checkpoint")->required();
  command->add_option("DST", options->target, "Output: a directory, or a file that ends in .gguf or .bin")->required();
  qkv::cli::add_lora_option(*command, options->lora);
  qkv::cli::add_choice(*command, "--to", options->to, {"qkv", "hf", "gguf", "andrea"},
                       "Output format [by extension: .gguf, .bin (andrea), otherwise qkv]");
  qkv::cli::add_choice(*command, "--type", options->type, {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"},
                       "Matrix type [f32; bf16 in GGUF files]");
  qkv::cli::add_count(*command, "--shard-bytes", options->shard_bytes, 1,
                      "Largest shard of a Hugging Face directory, in bytes");
  qkv::cli::add_andrea_options(*command, options->andrea, "ANDREA checkpoints: layout not stored in the file");
  qkv::cli::add_threads_option(*command);
  command->callback([options] { run(*options); });
}

const qkv::cli::Subcommand kConvert(42, add);

}  // namespace
