// SPDX-License-Identifier: Apache-2.0
// qkv.Model.generate: generates text from a prompt.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <qkv/generate.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "bind.h"
#include "generate_options.h"
#include "model_core.h"
#include "text.h"

namespace qkv::python {
namespace {

// Called from C++ for each token; a Python exception, including Ctrl-C, ends generation and propagates from generate().
class Listener {
 public:
  Listener(const ModelCore& core, const nb::object& callback, bool as_text)
      : core_(core), callback_(callback), as_text_(as_text) {}

  bool operator()(std::int32_t token) {
    const nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (callback_.is_none()) return true;
    if (!as_text_) return goes_on(callback_(token));
    const std::string shown = stream_.push(core_.tokenizer->decode(token));
    return shown.empty() || goes_on(callback_(unicode(shown)));
  }
  // Passes on the bytes of an incomplete character.
  void finish() {
    const std::string rest = stream_.flush();
    if (as_text_ && !callback_.is_none() && !rest.empty()) callback_(unicode(rest));
  }

 private:
  static bool goes_on(const nb::object& answer) { return !answer.is(nb::handle(Py_False)); }

  const ModelCore& core_;
  const nb::object& callback_;
  bool as_text_;
  Utf8Stream stream_;
};

nb::object generate(PythonModel& self, nb::handle prompt, std::int64_t max_tokens, const nb::kwargs& given) {
  ModelCore& core = *self.core;
  GenerateArguments asked(max_tokens, given, false);
  const bool as_text = text_bytes(prompt).has_value();
  asked.options.end_tokens = core.end_tokens;
  const std::vector<std::int32_t> tokens = prompt_tokens(core, prompt);
  if (core.tokenizer) asked.options.vocab_limit = std::min(core.tokenizer->size(), core.model().config().vocab_size);
  Listener listener(core, asked.on_token, as_text);
  const GenerateResult result = core.compute([&] {
    return qkv::generate(core.model(), tokens, asked.options, [&](std::int32_t token) { return listener(token); });
  });
  listener.finish();
  nb::object text = nb::none();
  if (as_text) {
    Utf8Stream whole;
    const std::string shown = whole.push(core.tokenizer->decode(result.tokens));
    text = unicode(shown + whole.flush());
  }
  if (asked.details) return generated(result, text);
  return as_text ? text : ids_array(result.tokens);
}

}  // namespace

GenerateArguments::GenerateArguments(std::int64_t max_tokens, const nb::kwargs& given, bool for_engine) {
  options.max_tokens = max_tokens;
  SamplerOptions& s = options.sampler;
  std::size_t known = 0;
  const auto take = [&](const char* name, auto& value) {
    if (!given.contains(name)) return;
    ++known;
    const nb::object object = given[name];
    if (!nb::try_cast(object, value))
      throw nb::type_error(("argument " + std::string(name) + " has an invalid value: " + shown_text(object)).c_str());
  };
  take("temperature", s.temperature);
  take("top_k", s.top_k);
  take("top_p", s.top_p);
  take("min_p", s.min_p);
  take("typical_p", s.typical_p);
  take("repeat_penalty", s.repeat_penalty);
  take("frequency_penalty", s.frequency_penalty);
  take("presence_penalty", s.presence_penalty);
  take("repeat_last_n", s.repeat_last_n);
  take("seed", s.seed);
  take("shift", options.shift);
  take("keep", options.keep);
  take("on_token", on_token);
  if (for_engine) {
    take("stream", s.stream);
    take("stop", options.stop);
    take("on_end", on_end);
  } else {
    take("details", details);
  }
  if (known < given.size()) throw nb::type_error(("unexpected keyword arguments in " + shown_text(given)).c_str());
}

nb::object ids_array(const std::vector<std::int32_t>& tokens) {
  Tensor ids(Dims{static_cast<std::int64_t>(tokens.size())}, DType::i32);  // [new tokens]
  std::copy(tokens.begin(), tokens.end(), ids.data<std::int32_t>());
  return to_numpy(std::move(ids));
}

nb::object generated(const GenerateResult& result, const nb::object& text) {
  const nb::object type = nb::module_::import_("qkv._results").attr("Generated");
  return type(text, ids_array(result.tokens), std::string(stop_reason_name(result.reason)), result.prompt_evaluated,
              result.prompt_seconds, result.generate_seconds, result.prompt_cached);
}

void bind_generate(nb::class_<PythonModel>& model) {
  using nb::arg;
  model.def(
      "generate", &generate, arg("prompt"), arg("max_tokens") = 256, arg("options"),
      nb::sig(
          "def generate(self, prompt: str | bytes | Integers, max_tokens: int = 256, *, temperature: float = 0.8, "
          "top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, typical_p: float = 1.0, repeat_penalty: float "
          "= 1.0, frequency_penalty: float = 0.0, presence_penalty: float = 0.0, repeat_last_n: int = 64, seed: int "
          "= 0, shift: bool = False, keep: int = 4, on_token: typing.Callable[[typing.Any], bool | None] | None = "
          "None, details: bool = False) -> typing.Any"),
      "Generates from a text or from token ids. Returns the new text or ids; with details, Generated(text, tokens, "
      "reason, prompt_evaluated, prompt_seconds, generate_seconds, prompt_cached). on_token is called with each piece "
      "of text in complete characters (invalid UTF-8 becomes U+FFFD), or with each id, and ends generation by "
      "returning False. temperature 0 takes the most probable token. Ctrl-C raises KeyboardInterrupt. Raises "
      "ValueError.");
}

}  // namespace qkv::python
