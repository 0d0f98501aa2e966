// SPDX-License-Identifier: Apache-2.0
// qkv.inspect: the activations of one forward pass.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <qkv/inspect.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "bind.h"
#include "model_core.h"
#include "text.h"

namespace qkv::python {
namespace {

struct PythonTrace {
  std::shared_ptr<const Trace> trace;
  SharedModel core;
};

constexpr std::array<const char*, kLayerSites> kSites{
    "resid_pre",      "ln1_scale", "ln1_normalized", "q",        "k",       "v",         "rot_q",     "rot_k",
    "products",       "scaled",    "scores",         "pattern",  "z",       "attn_out",  "resid_mid", "ln2_scale",
    "ln2_normalized", "mlp_pre",   "mlp_pre_linear", "mlp_post", "mlp_out", "resid_post"};

nb::object shown(const Tensor& tensor, const nb::object& owner) {
  return tensor.size() == 0 ? nb::none() : shown_in_numpy(tensor, owner);
}

nb::list layers(PythonTrace& self) {
  const nb::object owner = nb::cast(self);
  nb::list result;
  for (const TraceLayer& layer : self.trace->layers) {
    nb::dict sites;
    for (std::size_t i = 0; i < kSites.size(); ++i) {
      const Tensor& tensor = layer.at(static_cast<TraceSite>(i));
      if (tensor.size() > 0) sites[kSites[i]] = shown_in_numpy(tensor, owner);
    }
    result.append(sites);
  }
  return result;
}

nb::list lens(PythonTrace& self) {
  const nb::object owner = nb::cast(self), type = nb::module_::import_("qkv._results").attr("LensStage");
  nb::list result;
  for (const LensStage& stage : self.trace->lens)
    result.append(type(shown(stage.top_ids, owner), shown(stage.top_probs, owner), shown(stage.next_prob, owner),
                       shown(stage.last_prob, owner), shown(stage.entropy, owner)));
  return result;
}

nb::list to_python(const std::vector<HeadScores>& scores) {
  const nb::object type = nb::module_::import_("qkv._results").attr("HeadScores");
  nb::list result;
  for (const HeadScores& s : scores)
    result.append(type(s.layer, s.head, s.previous_token, s.first_token, s.duplicate_token, s.induction));
  return result;
}

HeadScoreOptions score_options(const ModelCore& core, std::uint64_t seed) {
  HeadScoreOptions options;
  options.seed = seed;
  if (core.tokenizer) {
    options.begin_token = core.tokenizer->begin_token();
    options.vocab_limit = core.tokenizer->size();
  }
  return options;
}

PythonTrace inspect(PythonModel& model, nb::handle prompt, std::int64_t lens_top, bool rollout, bool head_scores) {
  ModelCore& core = *model.core;
  const std::vector<std::int32_t> tokens = prompt_tokens(core, prompt);
  const TraceOptions options{.sites = {}, .lens_top = lens_top, .rollout = rollout};
  auto trace = core.compute([&] {
    Trace made = core.tokenizer ? trace_text(core.model(), *core.tokenizer, tokens, options)
                                : trace_text(core.model(), tokens, options);
    if (head_scores) made.head_scores = qkv::head_scores(core.model(), score_options(core, 1));
    return std::make_shared<const Trace>(std::move(made));
  });
  return {std::move(trace), model.core};
}

std::string page(PythonTrace& self, std::size_t most_bytes) {
  const Tokenizer& tokenizer = require_tokenizer(*self.core);
  const nb::gil_scoped_release released;
  return inspect_page(*self.trace, tokenizer, {.most_bytes = most_bytes, .first = {}});
}

using Heads = std::vector<std::pair<std::int64_t, std::int64_t>>;

std::vector<HeadId> head_ids(const Heads& heads) {
  std::vector<HeadId> ids;
  for (const auto& [layer, head] : heads) ids.push_back({layer, head});
  return ids;
}

nb::object floats(const std::vector<float>& values) {
  Tensor tensor(Dims{static_cast<std::int64_t>(values.size())});  // [vocab_size]
  std::copy(values.begin(), values.end(), tensor.data());
  return to_numpy(std::move(tensor));
}

nb::object effect(PythonModel& model, nb::handle prompt, const Heads& zeroed, const Heads& patched, nb::handle other) {
  ModelCore& core = *model.core;
  const std::vector<std::int32_t> tokens = prompt_tokens(core, prompt);
  const std::vector<std::int32_t> second = other.is_none() ? std::vector<std::int32_t>{} : prompt_tokens(core, other);
  const HeadEffect found =
      core.compute([&] { return head_effect(core.model(), tokens, head_ids(zeroed), head_ids(patched), second); });
  const nb::object type = nb::module_::import_("qkv._results").attr("HeadEffect");
  return type(floats(found.before), floats(found.after), found.kl);
}

}  // namespace

void bind_inspect(nb::module_& m) {
  using nb::arg;
  nb::class_<PythonTrace>(m, "Trace", "The activations of one forward pass over one text; arrays are zero-copy views.")
      .def_prop_ro(
          "tokens",
          [](PythonTrace& self) {
            Tensor ids(Dims{self.trace->ctx()}, DType::i32);  // [ctx]
            std::copy(self.trace->tokens.begin(), self.trace->tokens.end(), ids.data<std::int32_t>());
            return to_numpy(std::move(ids));
          },
          nb::sig("def tokens(self) -> numpy.ndarray"), "[ctx] i32.")
      .def_prop_ro(
          "pieces",
          [](PythonTrace& self) {
            nb::list pieces;
            for (const std::string& piece : self.trace->pieces) pieces.append(nb::bytes(piece.data(), piece.size()));
            return pieces;
          },
          nb::sig("def pieces(self) -> list[bytes]"), "The tokens' bytes; may be partial characters.")
      .def_prop_ro(
          "layers", &layers, nb::sig("def layers(self) -> list[dict[str, numpy.ndarray]]"),
          "Activations of each layer, by name: q, k, v, z [ctx, heads, d]; products, scaled, scores, pattern [n_head, "
          "ctx, "
          "ctx]; resid_pre, ln1_normalized, attn_out, resid_mid, mlp_pre, mlp_post, mlp_out, resid_post [ctx, d].")
      .def_prop_ro(
          "logits", [](PythonTrace& self) { return shown(self.trace->logits, nb::cast(self)); },
          nb::sig("def logits(self) -> numpy.ndarray"), "[ctx, vocab_size].")
      .def_prop_ro("lens", &lens, nb::sig("def lens(self) -> list[LensStage]"),
                   "Logit lens: predictions after each layer; n_layer + 1 stages.")
      .def_prop_ro(
          "rollout", [](PythonTrace& self) { return shown(self.trace->rollout, nb::cast(self)); },
          nb::sig("def rollout(self) -> numpy.ndarray | None"), "Attention rollout, [n_layer, ctx, ctx].")
      .def_prop_ro(
          "head_scores", [](PythonTrace& self) { return to_python(self.trace->head_scores); },
          nb::sig("def head_scores(self) -> list[HeadScores]"))
      .def(
          "save",
          [](PythonTrace& self, nb::handle directory) {
            const std::string path = path_of(directory);
            const nb::gil_scoped_release released;
            return save_trace(path, *self.trace);
          },
          arg("directory"), nb::sig("def save(self, directory: str | os.PathLike) -> int"),
          "Writes every activation as a .npy file with its TransformerLens name; returns their number. Raises "
          "FileError.")
      .def("page", &page, arg("most_bytes") = std::size_t{5'000'000},
           "The page of qkv inspect --html: one HTML file of at most most_bytes, as a string.");
  m.def("inspect", &inspect, arg("model"), arg("prompt"), nb::kw_only(), arg("lens_top") = 5, arg("rollout") = true,
        arg("head_scores") = false,
        nb::sig("def inspect(model: Model, prompt: str | bytes | Integers, *, lens_top: int = 5, rollout: bool = True, "
                "head_scores: bool = False) -> Trace"),
        "Records one forward pass over a text or token ids. Attention weights show how values are mixed; they do not "
        "prove what a head does: head_effect() changes heads and measures the effect.");
  m.def(
      "head_scores",
      [](PythonModel& model, std::uint64_t seed) {
        ModelCore& core = *model.core;
        return to_python(core.compute([&] { return head_scores(core.model(), score_options(core, seed)); }));
      },
      arg("model"), nb::kw_only(), arg("seed") = 1,
      nb::sig("def head_scores(model: Model, *, seed: int = 1) -> list[HeadScores]"),
      "How much each head behaves in known ways on a repeated sequence of random tokens, 0 to 1.");
  m.def("head_effect", &effect, arg("model"), arg("prompt"), nb::kw_only(), arg("zero") = Heads{},
        arg("patch") = Heads{}, arg("other").none() = nb::none(),
        nb::sig("def head_effect(model: Model, prompt: str | bytes | Integers, *, zero: list[tuple[int, int]] = ..., "
                "patch: list[tuple[int, int]] = ..., other: str | bytes | Integers | None = None) -> HeadEffect"),
        "Effect on the next-token prediction of zeroing heads (layer, head), or patching them from another text.");
}

}  // namespace qkv::python
