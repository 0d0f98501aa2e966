// SPDX-License-Identifier: Apache-2.0
// qkv bench generate: prefill and decode speed relative to hardware limits measured in between.
#include <fmt/format.h>
#include <qkv/engine.h>
#include <qkv/measure.h>
#include <qkv/model_file.h>
#include <qkv/threads.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"
#include "bench_timing.h"
#include "common_options.h"

namespace {

using qkv::DType;

struct Options {
  std::string model, preset = "andrea-120m", dtype = "auto", cache_type, device;
  std::int64_t prompt = 512, generate = 128, depth = 0, batch = 1, reps = 5, megabytes = 512;
  bool check_bits = false, json = false;
};

constexpr const char* kFooter = R"(
  pp N   prefill of N tokens; with the share of the peak (qkv bench peak) that its FLOPs reach, in f32, or in bf16 for
         models in bf16. Logits are computed only for the last token, as in generation.
  tg N   decode of N tokens, one by one; with the bytes of weights, keys and values read per second, and their share of
         this machine's sequential read bandwidth.
Each is the mean of --reps runs, with the standard deviation; limits are measured between the runs, with the same
threads. --depth starts with that many tokens in the context. With --batch-size, that many sequences are evaluated
together; rates count the tokens of all. Tokens are random (the time does not depend on them), and so are the weights
without -m.

--check-bits measures no time: it evaluates a text at once, in chunks, token by token, as one sequence and in a batch,
with 1, 2 and 3 threads, and compares all logits bit by bit.

Examples
  qkv bench generate                                    shape of ANDREA-120M, bf16 weights
  qkv bench generate -m model.gguf -p 512 -n 128 -t 2
  qkv bench generate -m model.gguf -p 0 -n 32 --depth 8000 --cache-type f16
  qkv bench generate -m model.gguf --batch 16 --json
  qkv bench generate -m model.gguf --check-bits -p 200)";

qkv::Model make_model(const Options& o) {
  const qkv::WeightType type = qkv::weight_type_from_name(o.dtype);
  if (!o.model.empty()) return qkv::load_model_for_inference(o.model, type).model;
  qkv::Model model(qkv::preset(o.preset), 1);
  if (type == qkv::DType::bf16 || (!type && qkv::fast_bf16())) model.set_compute_dtype(DType::bf16);
  return model;
}

// Requests that an engine evaluates together, each after the same --depth tokens.
class Requests {
 public:
  Requests(qkv::Model& model, const Options& o)
      : o_(o), vocab_size_(model.config().vocab_size), type_(type_of(o)), engine_(model, options(model)) {
    const qkv::ModelState state = type_ ? model.make_state(*type_) : model.make_state();
    bytes_per_token_ = static_cast<double>(state.bytes_per_token()) * static_cast<double>(o.batch);
  }

  // Seconds per request for this many random prompt tokens and this many generated tokens.
  double run(std::int64_t prompt, std::int64_t generated) {
    qkv::GenerateOptions options{.sampler = {.temperature = 0}, .max_tokens = generated, .shift = true, .keep = 0};
    double seconds = std::numeric_limits<double>::infinity();
    for (std::int64_t b = 0; b < o_.batch; ++b) {
      std::vector<std::int32_t> tokens = qkv::cli::random_tokens(o_.depth, vocab_size_, 0);
      const std::vector<std::int32_t> own = qkv::cli::random_tokens(prompt, vocab_size_, ++seed_);
      tokens.insert(tokens.end(), own.begin(), own.end());
      engine_.submit(std::move(tokens), options, [&](const qkv::EngineEvent& event) {
        if (event.result != nullptr)  // the last request to start; its time excludes the prefill of the others
          seconds = std::min(seconds, event.result->prompt_seconds + event.result->generate_seconds);
        return true;
      });
    }
    while (engine_.step()) {
    }
    return seconds;
  }
  double cache_bytes(double tokens) const { return tokens * bytes_per_token_; }

 private:
  static std::optional<qkv::DType> type_of(const Options& o) {
    return o.cache_type.empty() ? std::nullopt : std::optional(qkv::dtype_from_name(o.cache_type));
  }
  qkv::EngineOptions options(const qkv::Model& model) const {
    return {.slots = o_.batch,
            .queue = o_.batch,
            .chunk = o_.batch * std::max<std::int64_t>(o_.prompt, 512),
            .prefix_bytes = o_.depth > 0 ? qkv::request_bytes(model, type_) : 0,
            .cache_type = type_};
  }

  const Options& o_;
  std::int64_t vocab_size_;
  std::optional<qkv::DType> type_;
  qkv::Engine engine_;
  double bytes_per_token_ = 0;
  std::uint64_t seed_ = 0;
};

struct Measured {
  std::string test;      // "pp512", "tg128"
  double rate, spread;   // tokens per second: mean, standard deviation
  double work, ceiling;  // GFLOP/s or GB/s
  bool reading;
};

// Rates of `reps` runs of `tokens` tokens each; the hardware limit is sampled after each.
template <class Run, class Ceiling>
Measured measure(const Options& o, const std::string& test, std::int64_t tokens, double work, bool reading,
                 const Run& run, const Ceiling& ceiling) {
  run();
  std::vector<double> rates, ceilings;
  for (std::int64_t i = 0; i < o.reps; ++i) {
    rates.push_back(static_cast<double>(tokens) / run());
    for (int k = 0; k < 3; ++k) ceilings.push_back(ceiling.sample());
  }
  double mean = 0, squares = 0;
  for (const double rate : rates) mean += rate / static_cast<double>(rates.size());
  for (const double rate : rates) squares += (rate - mean) * (rate - mean);
  const double spread = rates.size() > 1 ? std::sqrt(squares / static_cast<double>(rates.size() - 1)) : 0;
  return {test, mean, spread, work * mean / static_cast<double>(tokens) * 1e-9, qkv::cli::median_of(ceilings), reading};
}

Measured prompt(const Options& o, qkv::Model& model, Requests& requests, DType type) {
  const qkv::ModelConfig& c = model.config();
  const auto tokens = static_cast<double>(o.prompt);
  const double head = 2.0 * static_cast<double>(c.d_model * c.vocab_size) * (tokens - 1);
  const double flops = (qkv::forward_flops_per_token(c, o.prompt) * tokens - head) * static_cast<double>(o.batch);
  const auto run = [&] { return requests.run(o.prompt, 1); };
  return measure(o, fmt::format("pp{}", o.prompt), o.prompt * o.batch, flops, false, run, qkv::PeakMeter(type));
}

Measured generation(const Options& o, qkv::Model& model, Requests& requests) {
  const double context = static_cast<double>(o.depth) + 0.5 * static_cast<double>(o.generate + 1);
  const double bytes =
      static_cast<double>(o.generate) * (static_cast<double>(model.weight_bytes()) + requests.cache_bytes(context));
  const auto run = [&] { return requests.run(1, o.generate); };
  return measure(o, fmt::format("tg{}", o.generate), o.generate * o.batch, bytes, true, run,
                 qkv::ReadMeter(o.megabytes << 20));
}

void print_row(const Options& o, const qkv::Model& model, const Measured& m) {
  const std::string name = o.model.empty() ? o.preset : o.model;
  const std::string cache = o.cache_type.empty() ? std::string(qkv::dtype_name(model.compute_dtype())) : o.cache_type;
  if (o.json) {
    nlohmann::ordered_json line = {{"test", m.test},
                                   {"model", name},
                                   {"compute_dtype", qkv::dtype_name(model.compute_dtype())},
                                   {"weight_bytes", model.weight_bytes()},
                                   {"cache_type", cache},
                                   {"threads", qkv::num_threads()},
                                   {"batch", o.batch},
                                   {"depth", o.depth},
                                   {"tokens_per_s", m.rate},
                                   {"deviation", m.spread},
                                   {m.reading ? "gb_per_s" : "gflops", m.work},
                                   {m.reading ? "read_gb_per_s" : "peak_gflops", m.ceiling},
                                   {"fraction", m.work / m.ceiling}};
    return qkv::cli::print(line.dump() + "\n");
  }
  std::string what = m.test;
  if (o.depth > 0) what += fmt::format(" @ {}", o.depth);
  if (o.batch > 1) what += fmt::format(" x {}", o.batch);
  qkv::cli::print(fmt::format("{:<16} {:9.1f} +- {:5.1f} tokens/s  {:7.1f} {} {:5.1f} % of {:.1f}\n", what, m.rate,
                              m.spread, m.work, m.reading ? "GB/s" : "GFLOP/s", 100 * m.work / m.ceiling, m.ceiling));
}

// --- check-bits

using Logits = std::vector<float>;

// The logits of the last token of a text evaluated in chunks of `chunk` by `batch` sequences at once.
std::vector<Logits> read_in_chunks(qkv::Model& model, std::span<const std::int32_t> text, std::size_t chunk,
                                   std::size_t batch) {
  std::vector<qkv::ModelState> states;
  std::vector<Logits> logits(batch, Logits(static_cast<std::size_t>(model.config().vocab_size)));
  for (std::size_t b = 0; b < batch; ++b) states.push_back(model.make_state());
  for (std::size_t at = 0; at < text.size(); at += chunk) {
    std::vector<qkv::DecodePart> parts;
    for (std::size_t b = 0; b < batch; ++b)
      parts.push_back({text.subspan(at, std::min(chunk, text.size() - at)), &states[b], logits[b]});
    model.decode_batch(parts);
  }
  return logits;
}

void check_bits(const Options& o, qkv::Model& model) {
  const std::int64_t length = std::min(std::max<std::int64_t>(o.prompt, 1), model.config().ctx_len);
  const std::vector<std::int32_t> text = qkv::cli::random_tokens(length, model.config().vocab_size, 1);
  const qkv::Tensor all = model.logits({1, length, text, {}, {}});  // [1, length, vocab_size]
  const float* expected = all.data() + (length - 1) * model.config().vocab_size;
  int compared = 0;
  for (const int threads : {1, 2, 3}) {
    qkv::set_num_threads(threads);
    for (const std::size_t chunk : {text.size(), std::size_t{64}, std::size_t{5}, std::size_t{1}})
      for (const std::size_t batch : {std::size_t{1}, std::size_t{3}})
        for (const Logits& logits : read_in_chunks(model, text, chunk, batch)) {
          ++compared;
          if (std::memcmp(logits.data(), expected, logits.size() * sizeof(float)) != 0)
            throw std::runtime_error(fmt::format("logits differ: {} tokens in chunks of {}, sequences {}, threads {}",
                                                 length, chunk, batch, threads));
        }
  }
  qkv::cli::print(fmt::format("{} tokens: {} evaluations gave the same {} logits, bit by bit\n", length, compared,
                              model.config().vocab_size));
}

void run(const Options& o) {
  qkv::cli::require_cpu(o.device, "generation");
  qkv::cli::note_other_load();
  qkv::Model model = make_model(o);
  if (o.check_bits) return check_bits(o, model);
  if (o.depth + std::max(o.prompt, o.generate) > model.config().ctx_len)
    throw qkv::cli::UsageError(fmt::format("the model's context of {} tokens is too small for --depth {} and {} more",
                                           model.config().ctx_len, o.depth, std::max(o.prompt, o.generate)));
  Requests requests(model, o);
  requests.run(1, 1);  // prepares the weights
  if (!o.json)
    qkv::cli::print(fmt::format(
        "{}: weights of {:.1f} MB, {} compute, cache {}, threads {}\n", o.model.empty() ? o.preset : o.model,
        static_cast<double>(model.weight_bytes()) / 1e6, qkv::dtype_name(model.compute_dtype()),
        o.cache_type.empty() ? std::string(qkv::dtype_name(model.compute_dtype())) : o.cache_type, qkv::num_threads()));
  if (o.prompt > 0) print_row(o, model, prompt(o, model, requests, model.compute_dtype()));
  if (o.generate > 0) print_row(o, model, generation(o, model, requests));
}

}  // namespace

void qkv::cli::add_bench_generate(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("generate", "Prefill and decode tokens per second vs. hardware limits");
  const auto count = [&](const char* name, std::int64_t& value, const char* help, const CLI::Validator& check) {
    qkv::cli::add_number(*command, name, value, help)->capture_default_str()->check(check)->type_name("N");
  };
  command->add_option("-m,--model", options->model, "Model: directory, GGUF file or ANDREA checkpoint [random weights]")
      ->type_name("MODEL");
  command->add_option("--preset", options->preset, "Configuration with random weights")
      ->check(CLI::IsMember(preset_names()).description(""))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "Weight type; auto: as stored")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}).description(""))
      ->capture_default_str();
  command->add_option("--cache-type", options->cache_type, "KV cache data type [the compute dtype]")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "q8_0"}).description(""));
  count("-p,--prompt", options->prompt, "Prompt tokens; 0 = none", qkv::cli::at_least(0));
  count("-n,--generate", options->generate, "New tokens; 0 = none", qkv::cli::at_least(0));
  count("--depth", options->depth, "Tokens already in the context", qkv::cli::at_least(0));
  count("-b,--batch-size", options->batch, "Sequences in parallel", CLI::Range(1, 4096));
  count("--reps", options->reps, "Runs per case", CLI::Range(1, 1000));
  count("--memory-mb", options->megabytes, "Memory to read for the bandwidth limit, MiB", CLI::Range(1, 1 << 20));
  command->add_flag("--check-bits", options->check_bits,
                    "Compare logits over chunk sizes, batches and threads; no timing");
  command->add_flag("--json", options->json, "One JSON object per line");
  add_device_option(*command, options->device);
  add_threads_option(*command);
  command->footer(kFooter);
  command->callback([options] { run(*options); });
}
