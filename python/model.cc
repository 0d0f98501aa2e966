// SPDX-License-Identifier: Apache-2.0
// qkv.Model: forward, loss, gradients, text, files.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <qkv/device.h>
#include <qkv/model.h>
#include <qkv/model_file.h>

#include <algorithm>
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

// The device by name, or by dtype if device is None.
std::string device_of(nb::handle device, const std::string& dtype) {
  if (dtype != "f32" && dtype != "f64") throw std::invalid_argument("[model] dtype must be f32 or f64; found " + dtype);
  const std::string of_type = dtype == "f64" ? "reference" : "cpu";
  const std::string name = device.is_none() ? of_type : name_given("device", device);
  require_device(name);
  if (dtype == "f64" && name != of_type)
    throw std::invalid_argument("[model] dtype f64 needs the device reference; found " + name);
  return name;
}

PythonModel make(nb::handle preset_name, std::uint64_t seed, const std::string& dtype, nb::handle device,
                 nb::handle tokenizer, const nb::kwargs& values) {
  ModelConfig config = preset_name.is_none() ? ModelConfig{} : preset(name_given("preset", preset_name));
  update(config, values);
  const std::string place = device_of(device, dtype);
  std::optional<Tokenizer> words;
  if (!tokenizer.is_none()) {
    const Tokenizer* given = nullptr;
    if (!nb::try_cast(tokenizer, given))
      throw nb::type_error(("tokenizer must be a Tokenizer; found " + shown_text(tokenizer)).c_str());
    words = *given;
  }
  if (words && preset_name.is_none() && !values.contains("vocab_size")) config.vocab_size = words->size();
  std::vector<std::int32_t> ends;
  if (words && words->end_token() >= 0) ends.push_back(words->end_token());
  const nb::gil_scoped_release released;
  return {std::make_shared<ModelCore>(Model(config.resolved(), seed, place), std::move(words), std::move(ends))};
}

PythonModel load(nb::handle path, nb::handle device) {
  const std::string name = path_of(path), place = device.is_none() ? "" : name_given("device", device);
  const nb::gil_scoped_release released;
  LoadedModel loaded = load_model(name, place);
  TextFacts facts = loaded.text_facts();
  return {std::make_shared<ModelCore>(std::move(loaded.model), std::move(loaded.tokenizer),
                                      std::move(loaded.end_tokens), std::move(facts))};
}

PythonModel on_device(PythonModel& self, const std::string& device) {
  ModelCore& core = *self.core;
  return {core.compute([&] {
    return std::make_shared<ModelCore>(core.model().on_device(device), core.tokenizer, core.end_tokens,
                                       core.text_facts());
  })};
}

nb::object forward(PythonModel& self, nb::handle tokens, nb::handle lengths) {
  const BatchRows rows(tokens, nb::none(), lengths);
  Tensor logits = self.core->compute([&] { return self.core->model().logits(rows.batch()); });
  const nb::object array = to_numpy(std::move(logits));  // [batch, ctx, vocab_size]
  return rows.tokens.one ? nb::object(array[0]) : array;
}

double loss(PythonModel& self, nb::handle tokens, nb::handle targets, nb::handle lengths) {
  const BatchRows rows(tokens, targets, lengths);
  return self.core->compute([&] { return self.core->model().loss(rows.batch()).mean(); });
}

nb::dict named(const Model& model, std::vector<Tensor> tensors) {
  nb::dict result;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    result[model.infos()[i].name.c_str()] = to_numpy(std::move(tensors[i]));
  return result;
}

nb::object loss_and_gradients(PythonModel& self, nb::handle tokens, nb::handle targets, nb::handle lengths) {
  const BatchRows rows(tokens, targets, lengths);
  std::vector<Tensor> gradients;
  const Loss sum = self.core->compute([&] {
    Model& model = self.core->model();
    gradients = model.zeros_like_parameters();
    const auto real =
        std::count_if(rows.targets.begin(), rows.targets.end(), [](std::int32_t target) { return target >= 0; });
    return model.loss_and_gradients(rows.batch(), real ? 1.0 / static_cast<double>(real) : 0, gradients);
  });
  return nb::make_tuple(sum.mean(), named(self.core->model(), std::move(gradients)));
}

// Keeps a model and its parameter access alive while arrays show its parameters.
struct ShownParameters {
  nb::object model;
  Model::ParameterAccess access;
};

// Zero-copy arrays of the parameters. While one exists, every computation sees what is written to it.
nb::dict parameters(PythonModel& self) {
  Model& model = self.core->model();
  auto shown = std::make_unique<ShownParameters>(
      ShownParameters{nb::cast(self), self.core->compute([&] { return model.change_parameters(); })});
  std::vector<Tensor>& tensors = *shown->access;
  const nb::capsule owner(shown.release(), [](void* p) noexcept { delete static_cast<ShownParameters*>(p); });
  nb::dict result;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    result[model.infos()[i].name.c_str()] = shown_in_numpy(tensors[i], owner);
  return result;
}

void save(PythonModel& self, nb::handle path, const std::string& format, nb::handle type) {
  const std::string name = path_of(path);
  const Tokenizer& tokenizer = require_tokenizer(*self.core);
  const std::string kind = type.is_none() ? "" : name_given("type", type);
  if (format != "qkv" && format != "huggingface" && format != "gguf")
    throw std::invalid_argument("[model] format must be 'qkv', 'huggingface' or 'gguf'; found '" + format + "'");
  if (format == "qkv" && !kind.empty())
    throw std::invalid_argument("[model] type is only for formats 'huggingface' and 'gguf'; found 'qkv'");
  self.core->compute([&] {
    const Model& model = self.core->model();
    if (format == "qkv") {
      save_model(name, model, tokenizer, self.core->text_facts());
    } else if (format == "gguf") {
      save_gguf(name, model, tokenizer, kind.empty() ? "bf16" : kind, self.core->text_facts());
    } else {
      save_hugging_face(name, model, tokenizer,
                        {.type = kind.empty() ? DType::f32 : dtype_from_name(kind), .facts = self.core->text_facts()});
    }
  });
}

std::string described(PythonModel& self) {
  const ModelConfig& c = self.core->model().config();
  return "<qkv.Model of " + std::to_string(parameter_count(c)) + " parameters: n_layer " + std::to_string(c.n_layer) +
         ", n_head " + std::to_string(c.n_head) + ", d_model " + std::to_string(c.d_model) + ", ctx_len " +
         std::to_string(c.ctx_len) + ", vocab_size " + std::to_string(c.vocab_size) + ">";
}

}  // namespace

void bind_model(nb::module_& m) {
  using nb::arg;
  m.def("preset_names", &preset_names, "Names for Model(preset=...).");
  m.def(
      "devices",
      [] {
        nb::dict all;
        for (const DeviceInfo& info : devices()) all[nb::cast(info.name)] = nb::cast(info.description);
        return all;
      },
      nb::sig("def devices() -> dict[str, str]"), "Device names for device=, with a description of each.");
  m.def("fast_bf16", &fast_bf16, "Whether this machine has bf16 matmul instructions.");
  nb::class_<PythonModel> model(
      m, "Model",
      "A decoder-only language model. Thread-safe: calls from several threads are serialized.\n\nModel(preset=None, *, "
      "seed=0, dtype='f32', device=None, tokenizer=None, **config): random parameters from the seed; config sets "
      "members of ModelConfig (n_layer, d_model ...); layers=[{...}, ...] has the members that differ per layer; "
      "device: see devices().");
  model.def(
      "__init__",
      [](PythonModel* self, nb::handle name, std::uint64_t seed, const std::string& dtype, nb::handle device,
         nb::handle tokenizer,
         const nb::kwargs& config) { new (self) PythonModel(make(name, seed, dtype, device, tokenizer, config)); },
      arg("preset").none() = nb::none(), nb::kw_only(), arg("seed") = 0, arg("dtype") = "f32",
      arg("device").none() = nb::none(), arg("tokenizer").none() = nb::none(), arg("config"),
      nb::sig(
          "def __init__(self, preset: str | None = None, *, seed: int = 0, dtype: str = 'f32', device: str | None = "
          "None, tokenizer: Tokenizer | None = None, **config: typing.Any) -> None"));
  model.def_static("load", &load, arg("path"), nb::kw_only(), arg("device").none() = nb::none(),
                   nb::sig("def load(path: str | os.PathLike, *, device: str | None = None) -> Model"),
                   "Loads a model: a qkv or Hugging Face directory, a GGUF file or an ANDREA checkpoint; device: see "
                   "devices(). Raises FileError.");
  model.def("on_device", &on_device, arg("device"), "A copy of the model on another device, in that device's type.");
  model.def_prop_ro("device", [](PythonModel& self) { return self.core->model().device(); });
  model.def("save", &save, arg("path"), nb::kw_only(), arg("format") = "qkv", arg("type").none() = nb::none(),
            nb::sig("def save(self, path: str | os.PathLike, *, format: typing.Literal['qkv', 'huggingface', 'gguf'] = "
                    "'qkv', type: str | None = None) -> None"),
            "Saves a qkv or Hugging Face directory, or a GGUF file (type 'bf16', 'f16', 'f32', 'q8_0', 'q4_0', "
            "'q4_1'). Raises FileError.");
  model.def("forward", &forward, arg("tokens"), arg("lengths").none() = nb::none(),
            nb::sig("def forward(self, tokens: Integers, lengths: Integers | None = None) -> numpy.ndarray"),
            "Logits [ctx, vocab_size] of tokens [ctx], or [batch, ctx, vocab_size] of [batch, ctx]. lengths [batch]: "
            "tokens past a sequence's length are padding.");
  model.def("__call__", &forward, arg("tokens"), arg("lengths").none() = nb::none(),
            nb::sig("def __call__(self, tokens: Integers, lengths: Integers | None = None) -> numpy.ndarray"),
            "Same as forward.");
  model.def(
      "loss", &loss, arg("tokens"), arg("targets").none() = nb::none(), arg("lengths").none() = nb::none(),
      nb::sig("def loss(self, tokens: Integers, targets: Integers | None = None, lengths: Integers | None = None) "
              "-> float"),
      "Mean of -ln p(target) in nats. targets: shaped like tokens, -1 is ignored; default: the next tokens.");
  model.def(
      "loss_and_gradients", &loss_and_gradients, arg("tokens"), arg("targets").none() = nb::none(),
      arg("lengths").none() = nb::none(),
      nb::sig("def loss_and_gradients(self, tokens: Integers, targets: Integers | None = None, lengths: Integers | "
              "None = None) -> tuple[float, dict[str, numpy.ndarray]]"),
      "The loss, and its gradient with respect to each parameter, by name.");
  model.def_prop_ro("parameters", &parameters, nb::sig("def parameters(self) -> dict[str, numpy.ndarray]"),
                    "The parameters by name, as zero-copy arrays. Get this property again before each change that "
                    "follows a computation.");
  model.def_prop_ro(
      "config", [](PythonModel& self) { return to_dict(self.core->model().config()); },
      nb::sig("def config(self) -> dict[str, typing.Any]"), "The complete configuration.");
  model.def_prop_ro("parameter_count", [](PythonModel& self) { return parameter_count(self.core->model().config()); });
  model.def_prop_ro(
      "tokenizer", [](PythonModel& self) { return self.core->tokenizer; },
      nb::sig("def tokenizer(self) -> Tokenizer | None"));
  model.def_prop_rw(
      "end_tokens", [](PythonModel& self) { return self.core->end_tokens; },
      [](PythonModel& self, std::vector<std::int32_t> ends) { self.core->end_tokens = std::move(ends); },
      "Ids that end a text.");
  model.def_prop_rw(
      "compute_dtype", [](PythonModel& self) { return std::string(dtype_name(self.core->model().compute_dtype())); },
      [](PythonModel& self, const std::string& type) {
        self.core->compute([&] { self.core->model().set_compute_dtype(dtype_from_name(type)); });
      },
      "Compute dtype of matmuls and attention: 'f32' or 'bf16' ('f64' for an f64 model).");
  model.def("__repr__", &described);
  bind_generate(model);
}

}  // namespace qkv::python
