// SPDX-License-Identifier: Apache-2.0
#include "sampler_options.h"
#include "common_options.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "qkv/interrupt.h"
#include "qkv/stop_strings.h"

namespace qkv::cli {
namespace {

// "15043+1.5", "15043-2", "15043-inf".
qkv::LogitBias parse_bias(const std::string& text) {
  const auto refuse = [&]() -> qkv::LogitBias {
    throw UsageError("--logit-bias expected ID+VALUE, ID-VALUE or ID-inf; found '" + text + "'");
  };
  qkv::LogitBias bias;
  const char* const end = text.data() + text.size();
  const auto id = std::from_chars(text.data(), end, bias.id);
  if (id.ec != std::errc() || id.ptr == end || (*id.ptr != '+' && *id.ptr != '-') || bias.id < 0) return refuse();
  const bool minus = *id.ptr == '-';
  if (id.ptr + 1 == end || id.ptr[1] == '-' || id.ptr[1] == '+') return refuse();
  const auto value = std::from_chars(id.ptr + 1, end, bias.value);
  if (value.ec != std::errc() || value.ptr != end) return refuse();
  if (minus) bias.value = -bias.value;
  return bias;
}

CLI::Option* number(CLI::App& command, const char* name, double& value, const char* help, const char* type) {
  return add_number(command, name, value, help)->capture_default_str()->type_name(type);
}

void add_penalties(CLI::App& command, qkv::SamplerOptions& sampler) {
  number(command, "--repeat-penalty", sampler.repeat_penalty, "Penalty on recent tokens; 1 = off", "R");
  number(command, "--frequency-penalty", sampler.frequency_penalty, "Subtracted per recent occurrence of the token",
         "F");
  number(command, "--presence-penalty", sampler.presence_penalty, "Subtracted once if the token occurred recently",
         "F");
  add_number(command, "--repeat-last-n", sampler.repeat_last_n, "Tokens the penalties look back on; 0 = none, -1 = all")
      ->capture_default_str()
      ->type_name("N");
}

}  // namespace

void add_model_option(CLI::App& command, std::string& path) {
  command.add_option("-m,--model", path, "Model: directory, GGUF file or ANDREA checkpoint")
      ->required()
      ->type_name("PATH");
}

void add_dtype_option(CLI::App& command, WritingOptions& options) {
  add_choice(command, "--dtype", options.dtype, {"auto", "f32", "bf16"}, "Weight type; auto: as stored");
  add_device_option(command, options.device);
}

qkv::LoadedModel load_for_generation(const std::string& path, const WritingOptions& options) {
  if (options.dtype != "auto" && !options.device.empty() && options.device != "cpu")
    throw UsageError("--dtype is for --device cpu; " + options.device + " has a fixed type");
  return qkv::load_model_for_inference(path, qkv::weight_type_from_name(options.dtype), options.device);
}

void add_max_tokens_option(CLI::App& command, WritingOptions& options, const std::string& help) {
  add_number(command, "-n,--max-tokens", options.generate.max_tokens, help)
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()))
      ->type_name("N");
}

void add_sampler_options(CLI::App& command, WritingOptions& options) {
  qkv::SamplerOptions& sampler = options.generate.sampler;
  number(command, "--temp,--temperature", sampler.temperature, "Sampling temperature: 0 = greedy, 1 = unscaled", "T");
  add_number(command, "--top-k", sampler.top_k, "Sample from the K most probable tokens; 0 = all")
      ->capture_default_str()
      ->type_name("K");
  number(command, "--typical", sampler.typical_p, "Locally typical sampling with total probability P; 1 = off", "P");
  number(command, "--top-p", sampler.top_p, "Nucleus sampling with total probability P; 1 = off", "P");
  number(command, "--min-p", sampler.min_p, "Minimum probability relative to the most probable token", "P");
  add_penalties(command, sampler);
  command
      .add_option("--logit-bias", options.biases, "Change a token's logit: 15043+2, 15043-2, 15043-inf (repeatable)")
      ->allow_extra_args(false)
      ->type_name("ID+VALUE");
  command.add_option("--stop", options.generate.stop, "Stop string, not printed (repeatable)")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  add_number(command, "-s,--seed", sampler.seed, "Random seed; the same seed gives the same text")
      ->capture_default_str()
      ->type_name("SEED");
}

void add_shift_options(CLI::App& command, WritingOptions& options, const std::string& kept) {
  CLI::Option* shift = command.add_flag("--shift", options.generate.shift,
                                        "Context shift: keep the first and the newest half, continue");
  add_number(command, "--keep", options.generate.keep,
             "First tokens to keep with --shift; -1 = the whole prompt" + kept)
      ->needs(shift)
      ->capture_default_str()
      ->type_name("N");
}

qkv::GenerateOptions checked_options(const WritingOptions& options) {
  qkv::GenerateOptions result = options.generate;
  for (const std::string& text : options.biases) result.sampler.logit_bias.push_back(parse_bias(text));
  try {
    const qkv::Sampler sampler(result.sampler);
    const qkv::StopStrings stop(result.stop);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  if (result.keep < -1)
    throw UsageError("--keep expected a number of tokens, or -1; found " + std::to_string(result.keep));
  if (result.max_tokens < 0) result.max_tokens = std::numeric_limits<std::int64_t>::max();
  return result;
}

void require_known_tokens(const qkv::GenerateOptions& options, const qkv::LoadedModel& loaded) {
  const std::int64_t vocab_size = std::min(loaded.tokenizer.size(), loaded.model.config().vocab_size);
  for (const qkv::LogitBias& bias : options.sampler.logit_bias)
    if (bias.id >= vocab_size)
      throw UsageError("--logit-bias expected a token id below " + std::to_string(vocab_size) + "; found " +
                       std::to_string(bias.id));
}

void run_engine(qkv::Engine& engine, const std::function<bool()>& submit_more) {
  bool more = true;
  do {
    more = submit_more && submit_more();
    if (qkv::interrupt_requested()) engine.cancel_all();
  } while (engine.step() || more);
}

}  // namespace qkv::cli
