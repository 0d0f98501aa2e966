// SPDX-License-Identifier: Apache-2.0
// qkv.Model.generate: a model goes on from a prompt.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <qkv/generate.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "bind.h"
#include "model_core.h"
#include "text.h"

namespace qkv::python {
namespace {

const char* name_of(StopReason reason) {
  switch (reason) {
    case StopReason::max_tokens:
      return "max_tokens";
    case StopReason::end_token:
      return "end_token";
    case StopReason::context_full:
      return "context_full";
    case StopReason::callback:
      break;
  }
  return "callback";
}

struct Wanted {
  GenerateOptions options;
  nb::object callback;
  bool as_text = false;
};

// Called by C++ for each token; an exception of Python's, Ctrl-C included, ends the text and comes out of generate().
class Listener {
 public:
  Listener(const ModelCore& core, const Wanted& wanted) : core_(core), wanted_(wanted) {}

  bool operator()(std::int32_t token) {
    const nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (wanted_.callback.is_none()) return true;
    if (!wanted_.as_text) return goes_on(wanted_.callback(token));
    const std::string shown = stream_.push(core_.tokenizer->decode(token));
    return shown.empty() || goes_on(wanted_.callback(unicode(shown)));
  }
  // What is left of an unfinished character.
  void finish() {
    const std::string rest = stream_.flush();
    if (wanted_.as_text && !wanted_.callback.is_none() && !rest.empty()) wanted_.callback(unicode(rest));
  }

 private:
  static bool goes_on(const nb::object& answer) { return !answer.is(nb::handle(Py_False)); }

  const ModelCore& core_;
  const Wanted& wanted_;
  Utf8Stream stream_;
};

nb::object generate(PythonModel& self, nb::handle prompt, std::int64_t max_tokens, const SamplerOptions& sampler,
                    bool shift, std::int64_t keep, nb::handle on_token, bool details) {
  ModelCore& core = *self.core;
  Wanted wanted;
  wanted.as_text = text_bytes(prompt).has_value();
  wanted.callback = nb::borrow(on_token);
  wanted.options.sampler = sampler;
  wanted.options.max_tokens = max_tokens;
  wanted.options.end_tokens = core.end_tokens;
  wanted.options.shift = shift;
  wanted.options.keep = keep;
  const std::vector<std::int32_t> tokens = prompt_tokens(core, prompt);
  if (core.tokenizer) wanted.options.vocab_limit = std::min(core.tokenizer->size(), core.model().config().vocab_size);
  Listener listener(core, wanted);
  const GenerateResult result = core.compute([&] {
    return qkv::generate(core.model(), tokens, wanted.options, [&](std::int32_t token) { return listener(token); });
  });
  listener.finish();
  nb::object text = nb::none();
  if (wanted.as_text) {
    Utf8Stream whole;
    const std::string shown = whole.push(core.tokenizer->decode(result.tokens));
    text = unicode(shown + whole.flush());
  }
  Tensor ids(Dims{static_cast<std::int64_t>(result.tokens.size())}, DType::i32);  // [new tokens]
  std::copy(result.tokens.begin(), result.tokens.end(), ids.data<std::int32_t>());
  nb::object array = to_numpy(std::move(ids));
  if (!details) return wanted.as_text ? text : array;
  const nb::object type = nb::module_::import_("qkv._results").attr("Generated");
  return type(text, array, name_of(result.reason), result.prompt_read, result.prompt_seconds, result.generate_seconds);
}

}  // namespace

void bind_generate(nb::class_<PythonModel>& model) {
  using nb::arg;
  const SamplerOptions d;
  model.def(
      "generate",
      [](PythonModel& self, nb::handle prompt, std::int64_t max_tokens, double temperature, std::int64_t top_k,
         double top_p, double min_p, double typical_p, double repeat_penalty, double frequency_penalty,
         double presence_penalty, std::int64_t repeat_last_n, std::uint64_t seed, bool shift, std::int64_t keep,
         nb::handle on_token, bool details) {
        SamplerOptions s;
        s.temperature = temperature;
        s.top_k = top_k;
        s.top_p = top_p;
        s.min_p = min_p;
        s.typical_p = typical_p;
        s.repeat_penalty = repeat_penalty;
        s.frequency_penalty = frequency_penalty;
        s.presence_penalty = presence_penalty;
        s.repeat_last_n = repeat_last_n;
        s.seed = seed;
        return generate(self, prompt, max_tokens, s, shift, keep, on_token, details);
      },
      arg("prompt"), arg("max_tokens") = 256, nb::kw_only(), arg("temperature") = d.temperature, arg("top_k") = d.top_k,
      arg("top_p") = d.top_p, arg("min_p") = d.min_p, arg("typical_p") = d.typical_p,
      arg("repeat_penalty") = d.repeat_penalty, arg("frequency_penalty") = d.frequency_penalty,
      arg("presence_penalty") = d.presence_penalty, arg("repeat_last_n") = d.repeat_last_n, arg("seed") = d.seed,
      arg("shift") = false, arg("keep") = 4, arg("on_token").none() = nb::none(), arg("details") = false,
      nb::sig(
          "def generate(self, prompt: str | bytes | Integers, max_tokens: int = 256, *, temperature: float = 0.8, "
          "top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, typical_p: float = 1.0, repeat_penalty: float "
          "= 1.0, frequency_penalty: float = 0.0, presence_penalty: float = 0.0, repeat_last_n: int = 64, seed: int "
          "= 0, shift: bool = False, keep: int = 4, on_token: typing.Callable[[typing.Any], bool | None] | None = "
          "None, details: bool = False) -> typing.Any"),
      "Goes on from a text, or from token ids: returns the new text, or the new ids; with details, Generated(text, "
      "tokens, reason, prompt_read, prompt_seconds, generate_seconds). on_token is called with each piece of text in "
      "whole characters (bytes that are none come as U+FFFD), or with each id, and ends the text by returning False. "
      "temperature 0 takes the most probable "
      "token. Ctrl-C ends it with KeyboardInterrupt. ValueError.");
}

}  // namespace qkv::python
