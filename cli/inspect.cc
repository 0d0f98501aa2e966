// SPDX-License-Identifier: Apache-2.0
// qkv inspect: a model's attention heads and activations on a text, in the terminal, as an HTML page or as arrays.
#include "qkv/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>
#include <optional>

#include "cli.h"
#include "common_options.h"
#include "inspect_text.h"
#include "output_paths.h"
#include "qkv/error.h"
#include "qkv/model_file.h"
#include "qkv/text_file.h"
#include "read_text.h"

namespace {

using namespace qkv::cli;

struct Options {
  std::string model, device, file, html, save, colour = "auto";
  std::optional<std::string> prompt, patch_text;
  std::optional<std::int64_t> layer, head;
  std::vector<std::string> ablate, patch;
  std::int64_t tokens = 0, top = 3;
  bool all = false, scores = false;

  bool has_text() const { return prompt || !file.empty(); }
  bool details() const { return all || layer || head; }
  bool shows_text() const { return details() || !(html + save).empty(); }
};

// "2.5" -> layer 2, head 5
std::vector<qkv::HeadId> heads_of(const std::vector<std::string>& list, const char* option, const qkv::ModelConfig& c) {
  std::vector<qkv::HeadId> heads;
  for (const std::string& text : list) {
    qkv::HeadId id;
    const char* end = text.data() + text.size();
    const auto [dot, error] = std::from_chars(text.data(), end, id.layer);
    const auto [stop, wrong] = error == std::errc() && dot != end && *dot == '.'
                                   ? std::from_chars(dot + 1, end, id.head)
                                   : std::from_chars_result{text.data(), std::errc::invalid_argument};
    if (wrong != std::errc() || stop != end)
      throw UsageError(fmt::format("{} expected LAYER.HEAD, such as 0.3; found '{}'", option, text));
    const bool exists = id.layer >= 0 && id.layer < c.n_layer;
    const std::int64_t count = exists ? c.layer(id.layer).n_head : c.n_head;
    if (!exists || id.head < 0 || id.head >= count)
      throw UsageError(
          fmt::format("{} expected a layer below {} and a head below {}; found {}", option, c.n_layer, count, text));
    heads.push_back(id);
  }
  return heads;
}

std::vector<std::int32_t> tokens_of(const std::string& text, const qkv::LoadedModel& loaded) {
  std::vector<std::int32_t> tokens = loaded.tokenizer.encode(text);
  if (loaded.tokenizer.begin_token() >= 0) tokens.insert(tokens.begin(), loaded.tokenizer.begin_token());
  if (tokens.empty()) throw UsageError("the text is empty");
  return tokens;
}

// The first `most` tokens (0: all); throws UsageError if they exceed the context.
std::vector<std::int32_t> that_fit(std::vector<std::int32_t> tokens, const qkv::LoadedModel& loaded,
                                   std::int64_t most) {
  if (most > 0 && static_cast<std::int64_t>(tokens.size()) > most) tokens.resize(static_cast<std::size_t>(most));
  const std::int64_t ctx_len = loaded.model.config().ctx_len;
  if (static_cast<std::int64_t>(tokens.size()) > ctx_len)
    throw UsageError(fmt::format("the text has {} tokens, the model's context {}; use the first {} with --tokens",
                                 tokens.size(), ctx_len, ctx_len));
  return tokens;
}

// Random tokens are sampled from the text's tokens if it has enough different ones, since the model knows those.
qkv::HeadScoreOptions score_options(const qkv::LoadedModel& loaded, std::vector<std::int32_t> text) {
  constexpr std::size_t kEnough = 16;
  qkv::HeadScoreOptions options;
  std::sort(text.begin(), text.end());
  text.erase(std::unique(text.begin(), text.end()), text.end());
  if (text.size() >= kEnough) options.alphabet = std::move(text);
  options.begin_token = loaded.tokenizer.begin_token();
  options.vocab_limit = loaded.tokenizer.size();
  return options;
}

void show_effect(const Options& o, qkv::LoadedModel& loaded, const std::vector<std::int32_t>& tokens) {
  const auto zeroed = heads_of(o.ablate, "--ablate", loaded.model.config());
  const auto patched = heads_of(o.patch, "--patch", loaded.model.config());
  std::vector<std::int32_t> other;
  if (o.patch_text) other = that_fit(tokens_of(*o.patch_text, loaded), loaded, o.tokens);
  const qkv::HeadEffect effect = asked([&] { return qkv::head_effect(loaded.model, tokens, zeroed, patched, other); });
  std::string text;
  for (const qkv::HeadId& id : zeroed) text += fmt::format("head {}: output set to zero\n", head_name(id));
  for (const qkv::HeadId& id : patched)
    text += fmt::format("head {}: patched from --patch-text (last {} of {} tokens)\n", head_name(id),
                        std::min(tokens.size(), other.size()), tokens.size());
  print(text + "\n" + effect_text(effect, loaded.tokenizer, 5));
}

// The activations needed for the requested output.
std::vector<qkv::TraceSite> sites_of(const Options& o) {
  using enum qkv::TraceSite;
  if (!o.html.empty()) return {q, k, rot_q, rot_k, v, z, scaled, pattern};
  return {o.details() || o.save.empty() ? pattern : resid_post};
}

// The heads selected by --layer and --head; all by default.
std::vector<qkv::HeadId> shown_heads(const Options& o, const qkv::ModelConfig& c) {
  std::vector<qkv::HeadId> heads;
  for (const qkv::HeadId& id : all_heads(c))
    if (o.layer.value_or(id.layer) == id.layer && o.head.value_or(id.head) == id.head) heads.push_back(id);
  return heads;
}

void write_page(const Options& o, const qkv::Trace& trace, const qkv::Tokenizer& tokenizer) {
  qkv::InspectPageOptions options;
  if (o.layer || o.head) options.first = shown_heads(o, trace.config);
  qkv::save_text(o.html, qkv::inspect_page(trace, tokenizer, options));
}

// "12", or "4 to 12" where layers differ.
std::string head_counts(const qkv::ModelConfig& c) {
  std::int64_t least = c.layer(0).n_head, most = least;
  for (std::int64_t l = 1; l < c.n_layer; ++l) {
    least = std::min(least, c.layer(l).n_head);
    most = std::max(most, c.layer(l).n_head);
  }
  return least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most);
}

std::string terminal_text(const Options& o, const qkv::Trace& trace, const qkv::Tokenizer& tokenizer) {
  std::string text = fmt::format("{}, {} of {} heads\n{}\n", counted(trace.ctx(), "token"),
                                 counted(trace.config.n_layer, "layer"), head_counts(trace.config), kWhatWeightsAreNot);
  if (!o.details())
    return text + heads_text(trace) + "\n" + lens_text(trace, tokenizer) +
           "\n--layer L --head H shows the keys of each query, --all does so for every head\n";
  for (const qkv::HeadId& id : shown_heads(o, trace.config))
    text += head_text(trace, id, static_cast<std::size_t>(o.top), colours_of_output(o.colour), output_columns()) + "\n";
  return text + lens_text(trace, tokenizer);
}

void check(const Options& o) {
  const bool effect = !o.ablate.empty() || !o.patch.empty();
  const bool reads = effect || o.tokens > 0 || o.shows_text();
  if (!o.has_text() && (reads || !o.scores))
    throw UsageError("inspect needs a text, -p TEXT or -f FILE; only --scores works without one");
  if (effect && (o.scores || o.shows_text()))
    throw UsageError(
        "--ablate and --patch show only the next token and cannot be used with --html, --save, --scores, "
        "--layer, --head or --all");
  if (o.patch.empty() && o.patch_text) throw UsageError("--patch-text needs --patch L.H, the heads to patch");
  if (!o.patch.empty() && !o.patch_text) throw UsageError("--patch needs --patch-text, the source text");
}

void check_heads(const Options& o, const qkv::ModelConfig& c) {
  if (o.layer.value_or(0) >= c.n_layer)
    throw UsageError(fmt::format("--layer must be below {}; found {}", c.n_layer, *o.layer));
  std::int64_t heads = 0;  // of --layer, or of the layer with the most heads
  for (std::int64_t l = 0; l < c.n_layer; ++l)
    if (o.layer.value_or(l) == l) heads = std::max(heads, c.layer(l).n_head);
  if (o.head.value_or(0) >= heads) throw UsageError(fmt::format("--head must be below {}; found {}", heads, *o.head));
}

void run(const Options& o) {
  check(o);
  qkv::cli::check_outputs({o.model, o.file}, {{"--html", o.html}, {"--save", o.save}});
  qkv::LoadedModel loaded = qkv::load_model(o.model, o.device);
  check_heads(o, loaded.model.config());
  std::vector<std::int32_t> tokens;
  if (o.has_text()) tokens = tokens_of(o.prompt ? *o.prompt : read_text(o.file, "the text"), loaded);
  if (!o.html.empty()) qkv::require_page_fits(loaded.model, that_fit(tokens, loaded, o.tokens));
  std::vector<qkv::HeadScores> scores;
  constexpr std::int64_t kLeastContext = 8;  // repeated random tokens need this; otherwise the page has no scores
  if (o.scores || (!o.html.empty() && loaded.model.config().ctx_len >= kLeastContext))
    scores = qkv::head_scores(loaded.model, score_options(loaded, tokens));
  if (o.scores) print("mean weight on repeated random tokens:\n" + scores_text(scores, 0));
  if (o.scores && !o.shows_text()) return;
  tokens = that_fit(std::move(tokens), loaded, o.tokens);
  if (!o.ablate.empty() || !o.patch.empty()) return show_effect(o, loaded, tokens);
  std::optional<qkv::TraceSaver> saver;
  if (!o.save.empty()) saver.emplace(o.save);
  const bool shown = o.details() || !o.html.empty() || !saver;
  qkv::Trace trace = qkv::trace_text(
      loaded.model, loaded.tokenizer, tokens,
      {.sites = sites_of(o), .lens_top = shown ? 5 : 0, .rollout = !o.html.empty(), .also = saver ? &*saver : nullptr});
  trace.model = o.model;
  trace.head_scores = std::move(scores);
  if (saver) {
    saver->save_ends(trace.tokens, trace.logits);
    print(fmt::format("{}: {} arrays\n", o.save, saver->files));
  }
  if (!o.html.empty()) {
    write_page(o, trace, loaded.tokenizer);
    print(o.html + "\n");
  }
  if (o.details() || (o.save + o.html).empty()) print(terminal_text(o, trace, loaded.tokenizer));
}

void add_outputs(CLI::App& command, Options& o) {
  command.add_option("--html", o.html, "Write a self-contained HTML page (at most 5 MB)")->type_name("FILE");
  command.add_option("--save", o.save, "Write activations as DIR/NAME.npy with TransformerLens hook names")
      ->type_name("DIR");
  command.add_flag("--scores", o.scores, "Score previous-token, first-token, duplicate-token and induction heads");
  command.add_option("--ablate", o.ablate, "Zero a head's output and compare the next token (repeatable)")
      ->allow_extra_args(false)
      ->type_name("L.H");
  command.add_option("--patch", o.patch, "Patch a head's output from --patch-text (repeatable)")
      ->allow_extra_args(false)
      ->type_name("L.H");
  command.add_option("--patch-text", o.patch_text, "Source text of --patch")->type_name("TEXT");
}

void add(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "Inspect a model on a text: attention heads, activations, an HTML page");
  const auto o = std::make_shared<Options>();
  command->add_option("-m,--model", o->model, "Model: directory, GGUF file or ANDREA checkpoint")
      ->required()
      ->type_name("MODEL");
  CLI::Option* prompt = command->add_option("-p,--prompt", o->prompt, "Text to evaluate")->type_name("TEXT");
  command->add_option("-f,--file", o->file, "File with the text; - = standard input")
      ->type_name("FILE")
      ->excludes(prompt);
  add_number(*command, "--tokens", o->tokens, "Use only the first N tokens")->check(at_least(1))->type_name("N");
  add_number(*command, "--layer", o->layer, "Show this layer's heads: the top keys of each query")
      ->check(at_least(0))
      ->type_name("L");
  add_number(*command, "--head", o->head, "Show this head of --layer or of every layer")
      ->check(at_least(0))
      ->type_name("H");
  command->add_flag("--all", o->all, "Show every head like that");
  add_count(*command, "--top", o->top, 1, "Keys shown per query");
  add_choice(*command, "--color,--colour", o->colour, {"auto", "always", "never"},
             "Colored heat maps; auto: on a terminal without NO_COLOR");
  add_outputs(*command, *o);
  add_device_option(*command, o->device);
  add_threads_option(*command);
  command->footer(
      "\nAttention weights are mixing coefficients. They are not evidence of what a head means: a head can attend to "
      "a\n"
      "token and make no use of it. --ablate and --patch change a head's output and show the effect.\n");
  command->callback([o] { run(*o); });
}

const Subcommand kInspect(46, add);

}  // namespace
