// SPDX-License-Identifier: Apache-2.0
// qkv explain: attention step by step, with shapes, formulas, costs and numbers.
#include "qkv/explain.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli.h"
#include "common_options.h"
#include "explain_text.h"
#include "qkv/error.h"
#include "qkv/model.h"
#include "qkv/model_file.h"
#include "qkv/text_file.h"

namespace {

using qkv::cli::ExplainedLayer;
using qkv::cli::UsageError;

struct Options {
  std::string preset, model, dtype = "f32", softmax, svg;
  std::int64_t batch = 0, ctx = 0, d_model = 0, heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0, head = 0;
  std::optional<std::int64_t> layer;
  std::uint64_t seed = 1;
  bool all_positions = false, json = false, numbers = false, scaling = false;
};

constexpr std::int64_t kMaxNumbers = 16;  // tokens and columns that --numbers prints

// The default example, a small one for --numbers, or a layer of a preset or model; options override it.
ExplainedLayer shape_of(const Options& o) {
  ExplainedLayer s{.sizes = {.d_model = 512, .n_head = 4}};
  if (o.numbers) s = {.sizes = {.d_model = 8, .n_head = 2}, .batch = 1, .ctx = 4};
  if (o.layer && o.preset.empty() && o.model.empty()) throw UsageError("--layer needs --model or --preset");
  if (!o.preset.empty() || !o.model.empty()) {
    const qkv::ModelConfig c = qkv::cli::asked([&] {
      return (o.model.empty() ? qkv::preset(o.preset) : qkv::load_config(o.model + "/config.json")).resolved();
    });
    const std::int64_t number = o.layer.value_or(0);
    if (number >= c.n_layer) throw UsageError(fmt::format("--layer must be below {}; found {}", c.n_layer, number));
    s.own = c.layer(number);
    if (!c.layers.empty())
      s.title = fmt::format("layer {} of {}{}", number, c.n_layer,
                            o.layer ? "" : " (layers differ; --layer N shows another)");
    s.sizes = {c.d_model, s.own->n_head, s.own->n_kv_head, s.own->head_dim, s.own->v_head_dim, s.own->qkv_bias};
    s.batch = 1;
    s.ctx = c.ctx_len;
  }
  if (o.d_model > 0 || o.heads > 0) s.sizes.head_dim = s.sizes.v_head_dim = s.sizes.n_kv_head = 0;
  if (o.d_model > 0) s.sizes.d_model = o.d_model;
  if (o.heads > 0) s.sizes.n_head = o.heads;
  if (o.kv_heads > 0) s.sizes.n_kv_head = o.kv_heads;
  if (o.head_dim > 0) s.sizes.head_dim = o.head_dim;
  if (o.v_head_dim > 0) s.sizes.v_head_dim = o.v_head_dim;
  if (o.batch > 0) s.batch = o.batch;
  if (o.ctx > 0) s.ctx = o.ctx;
  s.sizes = qkv::cli::asked([&] { return s.sizes.resolved(); });
  qkv::cli::asked([&] { return qkv::attention_sizes(s.sizes, s.batch, s.ctx); });
  if (s.own) {
    s.own->n_head = s.sizes.n_head;
    s.own->n_kv_head = s.sizes.n_kv_head;
    s.own->head_dim = s.sizes.head_dim;
    s.own->v_head_dim = s.sizes.v_head_dim;
  }
  s.causal = !o.all_positions;
  s.dtype = qkv::dtype_from_name(o.dtype);
  return s;
}

// "0.32,1.87,-inf"
std::vector<double> parse_scores(const std::string& text) {
  std::vector<double> scores;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string piece = text.substr(begin, end - begin);
    piece.erase(0, piece.find_first_not_of(' '));
    piece.erase(piece.find_last_not_of(' ') + 1);
    double value = 0;
    const auto [stop, error] = std::from_chars(piece.data(), piece.data() + piece.size(), value);
    if (error != std::errc() || stop != piece.data() + piece.size() || std::isnan(value) || value == INFINITY) {
      throw UsageError(fmt::format("--softmax expected comma-separated numbers; found '{}'", piece));
    }
    scores.push_back(value);
    begin = end + 1;
  }
  return scores;
}

void run_softmax(const Options& o) {
  const std::vector<double> scores = parse_scores(o.softmax), weights = qkv::softmax_of(scores);
  std::string text = "      score    weight\n";
  for (std::size_t i = 0; i < scores.size(); ++i) {
    text +=
        fmt::format("  {:>9}  {:>8.3f}\n", std::isinf(scores[i]) ? "-inf" : fmt::format("{:g}", scores[i]), weights[i]);
  }
  qkv::cli::print(text);
}

void run_scaling(const Options& o) {
  std::vector<qkv::ScalingRow> rows;
  for (const std::int64_t d_k : {16, 64, 256, 1024, 4096}) rows.push_back(qkv::measure_scaling(d_k, 256, 64, o.seed));
  if (!o.svg.empty()) qkv::save_text(o.svg, qkv::scaling_picture(rows));
  if (o.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const qkv::ScalingRow& r : rows) {
      list.push_back({{"d_k", r.d_k},
                      {"plain_deviation", r.plain_deviation},
                      {"scaled_deviation", r.scaled_deviation},
                      {"plain_largest", r.plain_largest},
                      {"scaled_largest", r.scaled_largest},
                      {"plain_gradient", r.plain_gradient},
                      {"scaled_gradient", r.scaled_gradient}});
    }
    return qkv::cli::print(list.dump(2) + "\n");
  }
  qkv::cli::print(qkv::cli::scaling_text(rows));
}

void run_numbers(const Options& o) {
  const ExplainedLayer s = shape_of(o);
  const std::int64_t widest = std::max({s.sizes.d_model, s.sizes.head_dim, s.sizes.v_head_dim, s.ctx});
  if (widest > kMaxNumbers) {
    throw UsageError(fmt::format("--numbers prints up to {} tokens and columns; found {}", kMaxNumbers, widest));
  }
  if (s.batch != 1) throw UsageError(fmt::format("--numbers expected one sequence; found --batch-size {}", s.batch));
  if (o.head >= s.sizes.n_head) {
    throw UsageError(fmt::format("--head must be below {}; found {}", s.sizes.n_head, o.head));
  }
  qkv::cli::print(qkv::cli::example_text(s.sizes, s.ctx, !o.all_positions, o.head, o.seed));
}

void run(const Options& o) {
  if (!o.softmax.empty()) return run_softmax(o);
  if (o.scaling) return run_scaling(o);
  if (o.numbers) return run_numbers(o);
  const ExplainedLayer s = shape_of(o);
  qkv::cli::print((o.json ? qkv::cli::steps_json : qkv::cli::steps_text)(s));
}

CLI::Option* add_size(CLI::App& command, const char* name, std::int64_t& size, const char* help) {
  return qkv::cli::add_number(command, name, size, help)->check(qkv::cli::at_least(1))->type_name("N");
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Attention step by step: shapes, formulas, costs, numbers");
  const auto o = std::make_shared<Options>();
  CLI::Option* model = command->add_option("-m,--model", o->model, "Model whose layer to explain")->type_name("DIR");
  command->add_option("--preset", o->preset, "Named configuration")->type_name("NAME")->excludes(model);
  qkv::cli::add_number(*command, "--layer", o->layer, "Layer of --model or --preset [0]")
      ->check(qkv::cli::at_least(0))
      ->type_name("N");
  add_size(*command, "--batch-size", o->batch, "Sequences [4; 1 with a preset, a model or --numbers]");
  CLI::Option* ctx =
      add_size(*command, "--ctx-len,--ctx", o->ctx, "Tokens per sequence [16; the model's context; 4 for --numbers]");
  add_size(*command, "--d-model", o->d_model, "Width of X [512; 8 for --numbers]");
  add_size(*command, "--n-head,--heads", o->heads, "Query heads [4; 2 for --numbers]");
  add_size(*command, "--n-kv-head,--kv-heads", o->kv_heads, "Key/value heads [--n-head]");
  add_size(*command, "--head-dim", o->head_dim, "d_k [d_model / heads]");
  add_size(*command, "--v-head-dim", o->v_head_dim, "d_v [d_k]");
  command->add_flag("--no-causal", o->all_positions, "No mask: full attention");
  qkv::cli::add_choice(*command, "--dtype", o->dtype, {"f32", "bf16", "f16"}, "Type for counting bytes");
  qkv::cli::add_number(*command, "--seed", o->seed, "Random seed of --numbers and --scaling")->capture_default_str();
  CLI::Option* json = command->add_flag("--json", o->json, "Print JSON");
  CLI::Option* numbers = command->add_flag("--numbers", o->numbers, "Show a small example with numbers");
  qkv::cli::add_number(*command, "--head", o->head, "Head shown by --numbers")
      ->check(qkv::cli::at_least(0))
      ->type_name("H")
      ->needs(numbers);
  CLI::Option* scaling =
      command->add_flag("--scaling", o->scaling, "Measure why scores are divided by sqrt(d_k)")->excludes(numbers);
  command->add_option("--svg", o->svg, "Write the chart of --scaling")->type_name("FILE")->needs(scaling);
  command->add_option("--softmax", o->softmax, "Softmax of one row of scores, such as 0.32,1.87,0.94,-inf")
      ->type_name("ROW")
      ->excludes(numbers)
      ->excludes(scaling)
      ->excludes(ctx);
  json->excludes(numbers);
  command->callback([o] { run(*o); });
}

const qkv::cli::Subcommand kExplain(45, add);

}  // namespace
