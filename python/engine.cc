// SPDX-License-Identifier: Apache-2.0
// qkv.Engine: generation for many concurrent requests.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <qkv/engine.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bind.h"
#include "generate_options.h"
#include "model_core.h"
#include "text.h"

namespace qkv::python {
namespace {

// Python callbacks of a request. Destroyed with the GIL held, wherever the engine releases it.
struct Listener {
  nb::object on_token, on_end;
  bool as_text = false;
  std::string text = {};

  bool take(const EngineEvent& event) {
    const nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    text += event.text;
    bool goes_on = true;
    if (!on_token.is_none() && (as_text ? !event.text.empty() : event.token >= 0)) {
      const nb::object piece = as_text ? unicode(std::string(event.text)) : nb::cast(event.token);
      goes_on = !on_token(piece).is(nb::handle(Py_False));
    }
    if (event.result == nullptr) return goes_on;
    if (!on_end.is_none()) on_end(generated(*event.result, as_text ? unicode(text) : nb::none()));
    if (event.result->error) std::rethrow_exception(event.result->error);
    return true;
  }
};

class PythonEngine {
 public:
  PythonEngine(const PythonModel& model, const EngineOptions& options)
      : core_(model.core),
        model_(&core_->model()),
        engine_(*model_, options, core_->tokenizer ? &*core_->tokenizer : nullptr) {}

 private:
  // One thread at a time; callbacks, which run inside step(), may submit and cancel.
  template <class Work>
  auto alone(const Work& work) {
    if (core_->is_used_here()) return work();
    return core_->compute([&] {
      if (&core_->model() != model_)
        throw std::invalid_argument("[engine] expected the model it was created with; found it moved into a trainer");
      return work();
    });
  }

 public:
  std::int64_t submit(nb::handle prompt, std::int64_t max_tokens, const nb::kwargs& given) {
    GenerateArguments asked(max_tokens, given, true);
    asked.options.end_tokens = core_->end_tokens;
    std::vector<std::int32_t> tokens = prompt_tokens(*core_, prompt);
    const auto destroy = [](Listener* listener) {
      const nb::gil_scoped_acquire held;
      delete listener;
    };
    const std::shared_ptr<Listener> listener(
        new Listener{std::move(asked.on_token), std::move(asked.on_end), text_bytes(prompt).has_value()}, destroy);
    return alone([&] {
      return engine_.submit(std::move(tokens), std::move(asked.options),
                            [listener](const EngineEvent& event) { return listener->take(event); });
    });
  }
  bool cancel(std::int64_t id) {
    return alone([&] { return engine_.cancel(id); });
  }
  void cancel_all() {
    alone([&] { engine_.cancel_all(); });
  }
  bool step() {
    return alone([&] { return engine_.step(); });
  }
  void run() {
    while (step())
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  template <class Number>
  Number told(Number (Engine::*number)() const noexcept) {
    return alone([&] { return (engine_.*number)(); });
  }

 private:
  SharedModel core_;
  Model* model_;
  Engine engine_;
};

}  // namespace

void bind_engine(nb::module_& m) {
  using nb::arg;
  nb::class_<PythonEngine> engine(
      m, "Engine",
      "Generation for many concurrent requests, which may be added, finish and be cancelled at any time: continuous "
      "batching. Each step evaluates one token of every running request and at most `chunk` prompt tokens. Up to "
      "`slots` requests run; up to `queue` wait. `prefix_bytes` is the memory of the prefix cache, which keeps KV "
      "caches of finished requests for prompts with a shared prefix; 0: no prefix cache, no sharing. A request's "
      "tokens do not depend on other requests. Parameters must not change while an engine is in use.");
  engine.def(
      "__init__",
      [](PythonEngine* self, const PythonModel& model, std::int64_t slots, std::int64_t queue, std::int64_t chunk,
         std::size_t prefix_bytes, const std::optional<std::string>& cache_type) {
        EngineOptions options{.slots = slots, .queue = queue, .chunk = chunk, .prefix_bytes = prefix_bytes};
        if (cache_type) options.cache_type = dtype_from_name(*cache_type);
        new (self) PythonEngine(model, options);
      },
      arg("model"), nb::kw_only(), arg("slots") = 16, arg("queue") = 1024, arg("chunk") = 512, arg("prefix_bytes") = 0,
      arg("cache_type").none() = nb::none());
  engine.def(
      "submit", &PythonEngine::submit, arg("prompt"), arg("max_tokens") = 256, arg("options"),
      nb::sig(
          "def submit(self, prompt: str | bytes | Integers, max_tokens: int = 256, *, temperature: float = 0.8, "
          "top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, typical_p: float = 1.0, repeat_penalty: float "
          "= 1.0, frequency_penalty: float = 0.0, presence_penalty: float = 0.0, repeat_last_n: int = 64, seed: int "
          "= 0, stream: int = 0, shift: bool = False, keep: int = 4, stop: list[str] = [], on_token: "
          "typing.Callable[[typing.Any], bool | None] | None = None, on_end: typing.Callable[[Generated], "
          "typing.Any] | None = None) -> int"),
      "Queues a request and returns its id. on_token is called with each piece of text, or with each id for a prompt "
      "of ids, and ends the request by returning False; on_end is called with Generated. Both may submit and cancel. "
      "Raises QueueFullError, ValueError.");
  engine.def("cancel", &PythonEngine::cancel, arg("id"),
             "Ends a request in the next step; no further token is reported. False: no such id.");
  engine.def("cancel_all", &PythonEngine::cancel_all, "Cancels all requests.");
  engine.def("step", &PythonEngine::step,
             "Evaluates one token of every running request and a chunk of prompts, and calls the callbacks. False when "
             "no request is left. Exceptions of callbacks and failed requests are raised after all other requests have "
             "their tokens.");
  engine.def("run", &PythonEngine::run, "Steps until no request is left.");
  engine.def_prop_ro(
      "running", [](PythonEngine& self) { return self.told(&Engine::running); }, "Requests with a slot.");
  engine.def_prop_ro(
      "waiting", [](PythonEngine& self) { return self.told(&Engine::waiting); }, "Requests in the queue.");
  engine.def_prop_ro(
      "prefix_bytes", [](PythonEngine& self) { return self.told(&Engine::prefix_bytes); },
      "Memory of the prefix cache.");
}

}  // namespace qkv::python
