// SPDX-License-Identifier: Apache-2.0
// qkv.Trainer: trains a model.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <qkv/corpus.h>
#include <qkv/dataset.h>
#include <qkv/model_file.h>
#include <qkv/train.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "bind.h"
#include "model_core.h"
#include "text.h"

namespace qkv::python {
namespace {

struct PythonTrainer {
  SharedModel core;

  template <class Work>
  auto with(const Work& work) {
    return core->compute([&] { return work(core->trainer()); });
  }
};

nb::object result_type(const char* name) { return nb::module_::import_("qkv._results").attr(name); }

nb::object to_python(const StepReport& r) {
  return result_type("StepReport")(r.step, r.loss, r.grad_norm, r.learning_rate, r.tokens, r.seconds, r.skipped,
                                   r.spike);
}
nb::object to_python(const EvalReport& r) {
  return result_type("EvalReport")(r.step, r.loss, r.bits_per_byte, r.tokens, r.best);
}

// Tokens of a text, in an unnamed memory-mapped file, which is freed when no longer used.
TokenDataset tokenize_aside(const Corpus& corpus, const Tokenizer& tokenizer) {
  const auto name = std::filesystem::temp_directory_path() / ("qkv-tokens-" + std::to_string(std::random_device{}()));
  struct Remove {
    const std::filesystem::path& path;
    ~Remove() {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  } const remove{name};
  return TokenDataset::tokenize(corpus, tokenizer, name.string());
}

TokenDataset dataset_of_files(const ModelCore& core, const std::vector<std::string>& paths, double validation) {
  if (paths.size() == 1 && TokenDataset::is_token_file(paths[0])) return TokenDataset::open(paths[0]);
  return tokenize_aside(Corpus::read(paths, {.validation_fraction = validation}), require_tokenizer(core));
}

bool is_path(nb::handle object) { return text_bytes(object).has_value() || nb::hasattr(object, "__fspath__"); }

// Paths of text files or of one token file, token ids, or (training ids, validation ids).
TokenDataset dataset_of(ModelCore& core, nb::handle data, double validation) {
  const bool list = PyList_Check(data.ptr()) || PyTuple_Check(data.ptr());
  if (is_path(data) || (list && nb::len(data) > 0 && is_path(data[0]))) {
    std::vector<std::string> paths;
    if (list) {
      for (nb::handle path : data) paths.push_back(path_of(path));
    } else {
      paths.push_back(path_of(data));
    }
    const nb::gil_scoped_release released;
    return dataset_of_files(core, paths, validation);
  }
  const std::int64_t vocab = core.model().config().vocab_size;
  if (PyTuple_Check(data.ptr()) && nb::len(data) == 2)
    return TokenDataset::from_tokens(token_rows("data", data[0]).tokens, token_rows("data", data[1]).tokens, vocab);
  if (!(validation >= 0 && validation < 1))
    throw std::invalid_argument("[train] validation must be at least 0 and below 1; found " +
                                std::to_string(validation));
  std::vector<std::int32_t> ids = token_rows("data", data).tokens;
  const auto cut = static_cast<std::ptrdiff_t>(ids.size()) -
                   static_cast<std::ptrdiff_t>(validation * static_cast<double>(ids.size()));
  const std::vector<std::int32_t> last(ids.begin() + cut, ids.end());
  ids.resize(static_cast<std::size_t>(cut));
  return TokenDataset::from_tokens(ids, last, vocab);
}

// Checks that the trainer will accept these, before the model is moved into it.
void check(ModelCore& core, const TokenDataset& data, const TrainConfig& config) {
  validate(config);
  const ModelConfig& model = core.model().config();
  const std::int64_t ctx = config.window > 0 ? config.window : model.ctx_len;
  if (ctx > model.ctx_len || data.training().window_count(ctx) == 0 || data.vocab_size() > model.vocab_size ||
      core.tokenizer->size() > model.vocab_size) {
    throw std::invalid_argument("[train] expected more than " + std::to_string(ctx) +
                                " training tokens (one window of at most ctx_len, plus one) and ids below " +
                                std::to_string(model.vocab_size) + "; found " + std::to_string(data.training().size()) +
                                " tokens and a vocabulary of " +
                                std::to_string(std::max(data.vocab_size(), core.tokenizer->size())));
  }
}

PythonTrainer make(PythonModel& model, nb::handle data, double validation, const nb::kwargs& values) {
  ModelCore& core = *model.core;
  if (core.in_training())
    throw std::invalid_argument("[train] expected a model without a trainer; found one in training");
  TrainConfig config;
  update(config, values);
  if (!core.tokenizer) core.tokenizer = Tokenizer::bytes();
  TokenDataset tokens = dataset_of(core, data, validation);
  check(core, tokens, config);
  core.compute([&] { core.train(std::move(tokens), config); });
  return {model.core};
}

PythonTrainer resume(nb::handle directory, nb::handle data, double validation) {
  const std::string path = path_of(directory);
  // The data is tokenized with the run's own tokenizer and vocabulary.
  PythonModel model{[&] {
    const nb::gil_scoped_release released;
    LoadedModel loaded = load_model(path);
    return std::make_shared<ModelCore>(std::move(loaded.model), std::move(loaded.tokenizer),
                                       std::move(loaded.end_tokens));
  }()};
  TokenDataset tokens = dataset_of(*model.core, data, validation);
  const std::vector<std::int32_t> ends = model.core->end_tokens;
  const nb::gil_scoped_release released;
  PythonTrainer trainer{std::make_shared<ModelCore>(Trainer::resume(path, std::move(tokens)))};
  trainer.core->end_tokens = ends;
  return trainer;
}

nb::object step(PythonTrainer& self, nb::handle tokens, nb::handle targets, nb::handle lengths) {
  if (tokens.is_none()) {
    if (!targets.is_none() || !lengths.is_none())
      throw std::invalid_argument("[train] targets and lengths need tokens; found none");
    return to_python(self.with([](Trainer& trainer) { return trainer.step(); }));
  }
  const BatchRows rows(tokens, targets, lengths);
  return to_python(self.with([&](Trainer& trainer) {
    const Batch batch = rows.batch();
    return trainer.step({&batch, 1});
  }));
}

// Python callbacks of a run. On Ctrl-C the run finishes its step and saves; then KeyboardInterrupt is raised.
class Listener {
 public:
  Listener(nb::handle on_step, nb::handle on_evaluation, nb::handle on_warning)
      : on_step_(on_step), on_evaluation_(on_evaluation), on_warning_(on_warning) {}

  TrainObserver observer() {
    TrainObserver observer;
    observer.stop_requested = [this] { return stop(); };
    if (!on_step_.is_none()) observer.on_step = [this](const StepReport& report) { tell(on_step_, report); };
    if (!on_evaluation_.is_none())
      observer.on_evaluation = [this](const EvalReport& report) { tell(on_evaluation_, report); };
    observer.on_warning = [this](const std::string& what) { warn(what); };
    return observer;
  }
  void raise() {
    if (pending_) throw nb::python_error(*pending_);
  }

 private:
  template <class Report>
  static void tell(nb::handle callback, const Report& report) {
    const nb::gil_scoped_acquire held;
    callback(to_python(report));
  }
  void warn(const std::string& what) {
    const nb::gil_scoped_acquire held;
    if (!on_warning_.is_none()) {
      on_warning_(what);
    } else if (PyErr_WarnEx(PyExc_RuntimeWarning, what.c_str(), 1) != 0) {
      throw nb::python_error();
    }
  }
  bool stop() {
    if (pending_) return true;
    const nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() == 0) return false;
    pending_.emplace();  // takes the pending exception
    return true;
  }

  nb::handle on_step_, on_evaluation_, on_warning_;
  std::optional<nb::python_error> pending_;
};

bool run(PythonTrainer& self, nb::handle directory, nb::handle on_step, nb::handle on_evaluation, nb::handle on_warning,
         std::int64_t stop_after) {
  RunOptions options;
  options.directory = path_of(directory);
  options.stop_after = stop_after;
  Listener listener(on_step, on_evaluation, on_warning);
  const TrainObserver observer = listener.observer();
  const bool complete = self.with([&](Trainer& trainer) { return run_training(trainer, options, observer); });
  listener.raise();
  return complete;
}

}  // namespace

void bind_trainer(nb::module_& m) {
  using nb::arg;
  nb::class_<PythonTrainer> trainer(
      m, "Trainer",
      "Trains a model: AdamW or Muon, schedules, gradient accumulation, checkpoints. A run depends only on its "
      "configuration and data.\n\nTrainer(model, data, *, validation=0.1, **config): data is the path of a text or "
      "token file, a list of text paths, token ids, or (training ids, validation ids); validation is the fraction at "
      "the end of a text or of ids to hold out; config sets members of TrainConfig (steps, batch_size, learning_rate "
      "...). The model is trained in place.");
  trainer
      .def(
          "__init__",
          [](PythonTrainer* self, PythonModel& model, nb::handle data, double validation, const nb::kwargs& config) {
            new (self) PythonTrainer(make(model, data, validation, config));
          },
          arg("model"), arg("data"), nb::kw_only(), arg("validation") = 0.1, arg("config"),
          nb::sig(
              "def __init__(self, model: Model, data: typing.Any, *, validation: float = 0.1, **config: typing.Any) "
              "-> None"))
      .def_static("resume", &resume, arg("directory"), arg("data"), nb::kw_only(), arg("validation") = 0.1,
                  nb::sig("def resume(directory: str | os.PathLike, data: typing.Any, *, validation: float = 0.1) -> "
                          "Trainer"),
                  "Resumes a run from its newest valid checkpoint, bit-identically; data must be the run's data.")
      .def(
          "step", &step, arg("tokens").none() = nb::none(), arg("targets").none() = nb::none(),
          arg("lengths").none() = nb::none(),
          nb::sig("def step(self, tokens: Integers | None = None, targets: Integers | None = None, lengths: Integers | "
                  "None = None) -> StepReport"),
          "One optimizer step, on the run's next sequences or on given tokens [batch, ctx]; targets default to the "
          "next tokens.")
      .def(
          "evaluate", [](PythonTrainer& self) { return to_python(self.with([](Trainer& t) { return t.evaluate(); })); },
          nb::sig("def evaluate(self) -> EvalReport"), "Evaluates on the validation split.")
      .def(
          "run", &run, arg("directory"), nb::kw_only(), arg("on_step").none() = nb::none(),
          arg("on_evaluation").none() = nb::none(), arg("on_warning").none() = nb::none(), arg("stop_after") = 0,
          nb::sig("def run(self, directory: str | os.PathLike, *, on_step: typing.Callable[[StepReport], typing.Any] | "
                  "None = None, on_evaluation: typing.Callable[[EvalReport], typing.Any] | None = None, on_warning: "
                  "typing.Callable[[str], typing.Any] | None = None, stop_after: int = 0) -> bool"),
          "Trains until config['steps'], with evaluations, checkpoints and metrics.jsonl in the directory. Returns "
          "True when the run is complete, False after step stop_after. Ctrl-C finishes the step, saves, and raises "
          "KeyboardInterrupt.")
      .def(
          "save",
          [](PythonTrainer& self, nb::handle directory) {
            const std::string path = path_of(directory);
            self.with([&](Trainer& t) { t.save(path); });
          },
          arg("directory"), nb::sig("def save(self, directory: str | os.PathLike) -> None"),
          "Saves a checkpoint for resume(). Raises FileError.")
      .def_prop_ro(
          "model", [](PythonTrainer& self) { return PythonModel{self.core}; }, nb::sig("def model(self) -> Model"))
      .def_prop_ro(
          "config", [](PythonTrainer& self) { return to_dict(self.core->trainer().config()); },
          nb::sig("def config(self) -> dict[str, typing.Any]"))
      .def(
          "set_config",
          [](PythonTrainer& self, const nb::kwargs& values) {
            TrainConfig config = self.core->trainer().config();
            update(config, values);
            self.with([&](Trainer& t) { t.set_config(config); });
          },
          arg("config"), nb::sig("def set_config(self, **config: typing.Any) -> None"),
          "Takes effect from the next step.")
      .def_prop_ro("steps_done", [](PythonTrainer& self) { return self.core->trainer().steps_done(); })
      .def_prop_ro("skipped_steps", [](PythonTrainer& self) { return self.core->trainer().skipped_steps(); })
      .def_prop_ro("best_loss", [](PythonTrainer& self) { return self.core->trainer().best_loss(); })
      .def_prop_ro("best_step", [](PythonTrainer& self) { return self.core->trainer().best_step(); })
      .def_prop_ro("has_validation", [](PythonTrainer& self) { return self.core->trainer().has_validation(); });
}

}  // namespace qkv::python
