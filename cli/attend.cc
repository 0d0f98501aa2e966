// SPDX-License-Identifier: Apache-2.0
// qkv attend: attention on .npy arrays, forward and backward.
#include <qkv/array_file.h>
#include <qkv/attention.h>
#include <qkv/attention_members.h>
#include <qkv/convert.h>
#include <qkv/error.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "cli.h"
#include "common_options.h"
#include "output_paths.h"

namespace {

using qkv::DType;
using qkv::Tensor;
using qkv::cli::UsageError;

struct Options {
  std::string q, k, v, dout;                                      // arrays to read
  std::string out, lse, probs, trace, dq, dk, dv, dmask, dsinks;  // arrays to write
  std::string causal, align, start, window, dtype, path, device;
  qkv::AttentionOptions attention;           // numbers and flags
  std::map<std::string, std::string> files;  // paths of array options, by option name

  bool has(const char* option) const { return !files.at(option).empty(); }
  bool wants_gradient() const { return !(dq + dk + dv + dmask + dsinks).empty(); }
};

struct Output {
  const char* name;
  std::string Options::*path;
  const char* what;
  const char* type = "FILE";
};
constexpr Output kOutputs[] = {
    {"--out", &Options::out, "Output"},
    {"--lse", &Options::lse, "Log-sum-exp of the scores [batch, heads, seq]"},
    {"--probs", &Options::probs, "Probabilities [batch, heads, seq, keys]"},
    {"--trace", &Options::trace, "Directory for scores.npy, softcapped.npy, masked.npy and probs.npy", "DIR"},
    {"--dq", &Options::dq, "Gradient of --q"},
    {"--dk", &Options::dk, "Gradient of --k"},
    {"--dv", &Options::dv, "Gradient of --v"},
    {"--dmask", &Options::dmask, "Gradient of a floating --mask"},
    {"--dsinks", &Options::dsinks, "Gradient of --sinks"}};

constexpr const char* kFooter = R"(
Arrays are .npy files [batch, heads, seq, dim] (float16, float32 or float64, C or Fortran order); rank 3 means batch 1.
Q may have more heads than K and V: query head h uses key head h / (heads of Q / heads of K).

  scores = Q K^T * scale                       scale is 1/sqrt(dim) unless given
  scores = C * tanh(scores / C)                with --softcap C
  scores = scores + mask - slope * |distance|  with a floating --mask, with --alibi
  O      = softmax(scores over the visible keys) V

Visible keys. Query i is at position start + i of the keys. --causal shows it the keys up to its position; --window
LEFT,RIGHT the keys from LEFT before to RIGHT after (-1: all; 0,0: only its own); a bool --mask the keys that are true;
lengths hide padding. The alignment of queries and keys must be given:
  top-left       start = 0: the first query and the first key are aligned
  bottom-right   start = keys - queries: the last ones are aligned (decoding with a cache)
  start          start = --start, one for all sequences or one per sequence; may be negative
A query without visible keys gives zeros, or an error with --require-readable-key.

Computes in float32 for any input type, unless --dtype is given: f64 (as --device reference), or bf16 or f16 to round Q,
K, V and DO to that type first. Results are float32 (float64 for f64), of rank 4. --dmask has the mask's shape.

Examples
  qkv attend --q Q.npy --k K.npy --v V.npy --causal top-left --out O.npy
  qkv attend --q Q.npy --k K.npy --v V.npy --causal bottom-right --window=255,0 --out O.npy --lse L.npy
  qkv attend --q Q.npy --k K.npy --v V.npy --causal start --start=-3,4 --kv-lengths N.npy --out O.npy
  qkv attend --q Q.npy --k K.npy --v V.npy --mask M.npy --out O.npy --trace steps/
  qkv attend --q Q.npy --k K.npy --v V.npy --out O.npy --dout DO.npy --dq DQ.npy --dk DK.npy --dv DV.npy)";

std::vector<std::int64_t> integers(const char* option, const std::string& text) {
  std::vector<std::int64_t> numbers;
  const char *p = text.data(), *end = p + text.size();
  while (true) {
    std::int64_t number = 0;
    const auto [next, error] = std::from_chars(p, end, number);
    if (error != std::errc() || (next != end && *next != ','))
      throw UsageError(std::string(option) + " expected comma-separated integers; found '" + text + "'");
    numbers.push_back(number);
    if (next == end) return numbers;
    p = next + 1;
  }
}

// Spellings of --causal and --align: top-left and top_left.
std::string alignment_name(std::string& text) {
  std::replace(text.begin(), text.end(), '_', '-');
  for (const char* known : {"top-left", "bottom-right", "start"})
    if (text == known) return {};
  return "expected top-left, bottom-right or start; found '" + text + "'";
}

qkv::Alignment alignment(const std::string& name) {
  if (name == "top-left") return qkv::Alignment::top_left;
  if (name == "bottom-right") return qkv::Alignment::bottom_right;
  return name == "start" ? qkv::Alignment::start : qkv::Alignment::none;
}

void require(bool holds, const char* otherwise) {
  if (!holds) throw UsageError(otherwise);
}

// Rejects contradictory options, without reading files.
void check(const Options& o) {
  require(o.causal.empty() || o.align.empty(), "--causal already sets the alignment; leave out --align");
  const std::string& aligned = o.causal.empty() ? o.align : o.causal;
  require(o.window.empty() || !aligned.empty(), "--window needs --causal or --align");
  require(!o.has("alibi_slopes") || !aligned.empty(), "--alibi needs --causal or --align");
  require(o.align.empty() || !o.window.empty() || o.has("alibi_slopes"),
          "--align is used only by --window and --alibi");
  require(o.start.empty() || aligned == "start", "--start is used only by --causal start and --align start");
  require(aligned != "start" || !o.start.empty(), "alignment 'start' needs --start");
  require(!o.attention.scale || std::isfinite(*o.attention.scale), "--scale expected a finite number");
  require(std::isfinite(o.attention.softcap) && o.attention.softcap >= 0,
          "--softcap expected a finite number of at least 0");
  require(o.device != "reference" || ((o.dtype.empty() || o.dtype == "f64") && o.path != "tiled"),
          "--device reference computes in f64 on the reference path; leave out --dtype and --path");
  require(o.dtype != "f64" || o.path != "tiled", "--path tiled computes in float32; leave out --dtype f64");
  require(!o.wants_gradient() || !o.dout.empty(), "gradients (--dq, --dk, --dv, --dmask, --dsinks) need --dout");
  require(o.dout.empty() || o.wants_gradient(),
          "--dout needs a gradient to write: --dq, --dk, --dv, --dmask or --dsinks");
  require(o.dmask.empty() || o.has("mask"), "--dmask needs --mask");
  require(o.dsinks.empty() || o.has("sinks"), "--dsinks needs --sinks");
}

void set_window(const Options& o, qkv::AttentionOptions& attention) {
  if (o.window.empty()) return;
  const auto window = integers("--window", o.window);
  require(window.size() == 2, "--window expected LEFT,RIGHT");
  require(window[0] >= -1 && window[1] >= -1, "--window expected numbers of at least 0, or -1 for no limit");
  attention.window_left = window[0];
  attention.window_right = window[1];
}

std::vector<std::int64_t> load_lengths(const std::string& option, const std::string& path) {
  if (path.empty()) return {};
  const Tensor array = qkv::load_npy(path);
  if (array.shape().rank() != 1 || (array.dtype() != DType::i64 && array.dtype() != DType::i32)) {
    throw std::invalid_argument("[attend] " + option + " must be int64 [batch]; found " +
                                std::string(qkv::dtype_name(array.dtype())) + " " + qkv::to_string(array.shape()));
  }
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(array.size()));
  for (std::size_t b = 0; b < lengths.size(); ++b)
    lengths[b] = array.dtype() == DType::i64 ? array.data<std::int64_t>()[b] : array.data<std::int32_t>()[b];
  return lengths;
}

// A floating array of rank 4 (rank 3: batch 1), converted to `dtype`.
Tensor load_heads(const char* option, const std::string& path, DType dtype) {
  const Tensor array = qkv::load_npy(path);
  qkv::Dims shape = array.shape();
  if (shape.rank() == 3) shape = {1, shape[0], shape[1], shape[2]};
  if (shape.rank() != 4 || !is_floating(array.dtype())) {
    throw std::invalid_argument(std::string("[attend] ") + option +
                                " must be floating [batch, heads, seq, dim]; found " +
                                std::string(qkv::dtype_name(array.dtype())) + " " + qkv::to_string(array.shape()));
  }
  return qkv::converted({array.raw(), array.dtype(), shape, contiguous_strides(shape)}, dtype);
}

// The inputs, and options with views of them.
struct Inputs {
  Tensor q, k, v;            // [batch, n_head | n_kv_head, seq, dim]
  Tensor dout;               // [batch, n_head, q_len, d_v]; empty if not given
  std::list<Tensor> arrays;  // arrays of options, as stored
  qkv::AttentionOptions options;
};

std::string option_name(const qkv::OptionText& option) {
  std::string name = std::string("--") + option.keyword;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

void load_options(const Options& o, Inputs& in) {
  qkv::for_each_other_option(
      [&]<class T>(const qkv::OptionText& option, T& to) {
        const auto file = o.files.find(option.name);
        if (file == o.files.end() || file->second.empty()) return;
        if constexpr (std::is_same_v<T, std::vector<std::int64_t>>)
          to = load_lengths(option_name(option), file->second);
        if constexpr (std::is_same_v<T, qkv::ConstView>) to = in.arrays.emplace_back(qkv::load_npy(file->second));
      },
      in.options);
}

void load(const Options& o, Inputs& in) {
  const bool wide = o.device == "reference";
  const DType dtype = wide ? DType::f64 : o.dtype.empty() ? DType::f32 : qkv::dtype_from_name(o.dtype);
  qkv::AttentionOptions& a = in.options;
  a = o.attention;
  set_window(o, a);
  if (!o.start.empty()) a.start = integers("--start", o.start);
  in.q = load_heads("--q", o.q, dtype);
  in.k = load_heads("--k", o.k, dtype);
  in.v = load_heads("--v", o.v, dtype);
  if (!o.dout.empty()) in.dout = load_heads("--dout", o.dout, dtype);
  load_options(o, in);
  require(o.dmask.empty() || a.mask.dtype != DType::boolean,
          "--dmask needs a floating mask; a bool mask has no gradient");
  a.causal = !o.causal.empty();
  const bool alone = o.causal == "alone";  // unambiguous only if both alignments are equal
  if (alone && in.q.shape()[2] != in.k.shape()[2])
    throw UsageError("--causal with " + std::to_string(in.q.shape()[2]) + " queries and " +
                     std::to_string(in.k.shape()[2]) + " keys needs an alignment: top-left, bottom-right or start");
  a.alignment = alignment(alone ? "top-left" : a.causal ? o.causal : o.align);
  if (wide || o.path == "reference") a.path = qkv::AttentionPath::reference;
  if (o.path == "tiled") a.path = qkv::AttentionPath::tiled;
}

// Everything is computed before the first file is written.
class Results {
 public:
  explicit Results(const Inputs& in) : dtype_(in.q.dtype() == DType::f64 ? DType::f64 : DType::f32) {}

  // A zero array to be saved at a path; an empty view (not requested) without a path.
  qkv::View add(const std::string& path, const qkv::Dims& shape) {
    if (path.empty()) return {};
    files_.push_back({path, Tensor(shape, dtype_)});
    return files_.back().array;
  }
  Tensor needed(const qkv::Dims& shape) const { return Tensor(shape, dtype_); }
  void save() const {
    for (const File& file : files_) qkv::save_npy(file.path, file.array);
  }

 private:
  struct File {
    std::string path;
    Tensor array;
  };
  DType dtype_;
  std::vector<File> files_;
};

void compute_steps(const std::string& directory, const Inputs& in, const qkv::Dims& shape, Results& results) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw qkv::FileError(directory, error.message());
  qkv::AttentionSteps steps;  // each [batch, n_head, q_len, kv_len]
  steps.scores = results.add(directory + "/scores.npy", shape);
  steps.softcapped = results.add(directory + "/softcapped.npy", shape);
  steps.masked = results.add(directory + "/masked.npy", shape);
  steps.probs = results.add(directory + "/probs.npy", shape);
  attention_steps(in.q, in.k, in.v, in.options, steps);
}

void compute_gradients(const Options& o, const Inputs& in, const qkv::ConstView& out, const qkv::ConstView& lse,
                       Results& results) {
  qkv::AttentionGradients gradients;
  gradients.dq = results.add(o.dq, in.q.shape());
  gradients.dk = results.add(o.dk, in.k.shape());
  gradients.dv = results.add(o.dv, in.v.shape());
  gradients.dmask = results.add(o.dmask, in.options.mask.shape);
  gradients.dsinks = results.add(o.dsinks, in.options.sinks.shape);
  attention_backward(in.q, in.k, in.v, out, lse, in.dout, in.options, gradients);
}

void check_paths(const Options& o) {
  std::vector<std::string> inputs{o.q, o.k, o.v, o.dout};
  for (const auto& [option, path] : o.files) inputs.push_back(path);
  std::vector<qkv::cli::OutputPath> outputs;
  for (const Output& output : kOutputs) outputs.push_back({output.name, o.*output.path});
  qkv::cli::check_outputs(inputs, outputs);
}

void run(const Options& o) {
  check(o);
  check_paths(o);
  Inputs in;
  load(o, in);
  const qkv::Dims &q = in.q.shape(), &k = in.k.shape(), &v = in.v.shape();
  const qkv::Dims scores_shape{q[0], q[1], q[2], k[2]}, lse_shape{q[0], q[1], q[2]};
  Results results(in);
  qkv::AttentionResults forward;
  forward.out = results.add(o.out, {q[0], q[1], q[2], v[3]});
  Tensor unsaved_lse = results.needed(lse_shape);  // the gradients need it
  forward.lse = o.lse.empty() ? unsaved_lse.view() : results.add(o.lse, lse_shape);
  forward.probs = results.add(o.probs, scores_shape);
  attention(in.q, in.k, in.v, in.options, forward);
  if (o.wants_gradient()) compute_gradients(o, in, forward.out, forward.lse, results);
  if (!o.trace.empty()) compute_steps(o.trace, in, scores_shape, results);
  results.save();
}

// Options that need no special handling: files for arrays, numbers and flags.
void add_options(CLI::App& command, Options& o) {
  qkv::for_each_other_option(
      [&]<class T>(const qkv::OptionText& option, T& to) {
        const std::string name = option_name(option);
        if constexpr (std::is_same_v<T, qkv::ConstView> || std::is_same_v<T, std::vector<std::int64_t>>)
          command.add_option(name, o.files[option.name], option.help)->type_name("FILE")->group("Arrays to read");
        else if constexpr (std::is_same_v<T, bool>)
          command.add_flag(name, to, option.help);
        else if constexpr (!std::is_same_v<T, qkv::AttentionDropout>)  // used only in training
          qkv::cli::add_number(command, name, to, option.help)->type_name("X");
      },
      o.attention);
}

void add(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("attend", "Attention on arrays: softmax(mask(Q K^T * scale)) V and its gradients");
  auto o = std::make_shared<Options>();
  const auto file = [&](const char* name, std::string& path, const char* what) {
    return command->add_option(name, path, what)->type_name("FILE")->group("Arrays to read");
  };
  file("--q", o->q, "Queries [batch, heads, seq, dim]")->required();
  file("--k", o->k, "Keys")->required();
  file("--v", o->v, "Values; their dim may differ")->required();
  file("--dout", o->dout, "Gradient with respect to --out");
  const auto how = [&](const char* name, std::string& value, const char* help) {
    return command->add_option(name, value, help)
        ->transform(CLI::Validator(alignment_name, ""))
        ->type_name("top-left|bottom-right|start");
  };
  const CLI::Option* causal = how("--causal", o->causal, "Causal mask with this alignment")->expected(0, 1);
  how("--align", o->align, "Alignment for --window or --alibi-slopes without --causal");
  command->add_option("--start", o->start, "Position of query 0 of each sequence")->type_name("N[,N...]");
  command->add_option("--window", o->window, "Attention window: keys before and after the query")
      ->type_name("LEFT,RIGHT");
  add_options(*command, *o);
  qkv::cli::add_choice(*command, "--dtype", o->dtype, {"f32", "f64", "bf16", "f16"}, "Compute dtype [f32]");
  qkv::cli::add_choice(*command, "--path", o->path, {"reference", "tiled"},
                       "reference (full score matrix) or tiled (online softmax) [automatic]");
  qkv::cli::add_device_option(*command, o->device);
  qkv::cli::add_threads_option(*command);
  for (const Output& output : kOutputs)
    command->add_option(output.name, (*o).*output.path, output.what)->type_name(output.type)->group("Arrays to write");
  command->get_option("--out")->required();
  command->footer(kFooter);
  command->callback([o, causal] {
    if (causal->count() > 0 && o->causal.empty()) o->causal = "alone";
    run(*o);
  });
}

const qkv::cli::Subcommand kAttend(10, add);

}  // namespace
