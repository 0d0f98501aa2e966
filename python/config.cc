// SPDX-License-Identifier: Apache-2.0
// Configurations as dicts: the one list of their members' names.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "model_core.h"

namespace qkv::python {
namespace {

constexpr std::array<std::string_view, 2> kNorms{"rmsnorm", "layernorm"};
constexpr std::array<std::string_view, 4> kActivations{"relu", "relu2", "gelu", "swiglu"};
constexpr std::array<std::string_view, 2> kPositions{"learned", "rotary"};
constexpr std::array<std::string_view, 4> kSchedules{"cosine", "linear", "wsd", "constant"};

[[noreturn]] void fail(const std::string& expected, nb::handle found) {
  throw std::invalid_argument("[config] " + expected + "; found " + nb::cast<std::string>(nb::repr(found)));
}

std::string text(nb::handle value) {
  std::string result;
  if (!nb::try_cast(value, result)) fail("expected a name", value);
  return result;
}

template <class Enum, std::size_t N>
Enum named(const char* member, const std::array<std::string_view, N>& names, nb::handle value) {
  const std::string name = text(value);
  std::string all;
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
    all += (i ? ", " : "") + std::string(names[i]);
  }
  fail(std::string(member) + " must be one of " + all, value);
}

// What a member is in Python, and back.
nb::object value_of(Norm norm) { return nb::cast(kNorms[std::size_t(norm)]); }
nb::object value_of(Activation activation) { return nb::cast(kActivations[std::size_t(activation)]); }
nb::object value_of(Positions positions) { return nb::cast(kPositions[std::size_t(positions)]); }
nb::object value_of(Schedule schedule) { return nb::cast(kSchedules[std::size_t(schedule)]); }
nb::object value_of(DType dtype) { return nb::cast(dtype_name(dtype)); }
template <class T>
nb::object value_of(const T& value) {
  return nb::cast(value);
}

void set(const char* name, Norm& norm, nb::handle value) { norm = named<Norm>(name, kNorms, value); }
void set(const char* name, Activation& a, nb::handle value) { a = named<Activation>(name, kActivations, value); }
void set(const char* name, Positions& p, nb::handle value) { p = named<Positions>(name, kPositions, value); }
void set(const char* name, Schedule& s, nb::handle value) { s = named<Schedule>(name, kSchedules, value); }
void set(const char*, DType& dtype, nb::handle value) { dtype = dtype_from_name(text(value)); }
template <class T>
void set(const char* name, T& member, nb::handle value) {
  const char* kind = std::is_same_v<T, bool>       ? " must be True or False"
                     : std::is_floating_point_v<T> ? " must be a number"
                     : std::is_integral_v<T>       ? " must be a whole number that fits"
                                                   : " must be numbers";
  if (!nb::try_cast(value, member)) fail(name + std::string(kind), value);
}

template <class Config, class Visit>
void members(Config& c, const Visit& visit) requires std::is_same_v<std::remove_const_t<Config>, ModelConfig> {
  visit("n_layer", c.n_layer);
  visit("n_head", c.n_head);
  visit("n_kv_head", c.n_kv_head);
  visit("head_dim", c.head_dim);
  visit("v_head_dim", c.v_head_dim);
  visit("d_model", c.d_model);
  visit("d_ff", c.d_ff);
  visit("vocab_size", c.vocab_size);
  visit("ctx_len", c.ctx_len);
  visit("norm", c.norm);
  visit("norm_gain", c.norm_gain);
  visit("norm_bias", c.norm_bias);
  visit("norm_eps", c.norm_eps);
  visit("embedding_norm", c.embedding_norm);
  visit("final_norm", c.final_norm);
  visit("activation", c.activation);
  visit("positions", c.positions);
  visit("rope_theta", c.rope_theta);
  visit("rope_factor", c.rope_scaling.factor);
  visit("rope_low_freq_factor", c.rope_scaling.low_freq_factor);
  visit("rope_high_freq_factor", c.rope_scaling.high_freq_factor);
  visit("rope_original_ctx_len", c.rope_scaling.original_ctx_len);
  visit("rope_frequency_factors", c.rope_scaling.frequency_factors);
  visit("attention_bias", c.attention_bias);
  visit("mlp_bias", c.mlp_bias);
  visit("tied_head", c.tied_head);
}

template <class Config, class Visit>
void members(Config& c, const Visit& visit) requires std::is_same_v<std::remove_const_t<Config>, TrainConfig> {
  visit("steps", c.steps);
  visit("batch_size", c.batch_size);
  visit("grad_accum", c.grad_accum);
  visit("learning_rate", c.learning_rate);
  visit("min_lr", c.min_lr);
  visit("warmup_steps", c.warmup_steps);
  visit("decay_steps", c.decay_steps);
  visit("schedule", c.schedule);
  visit("weight_decay", c.weight_decay);
  visit("beta1", c.beta1);
  visit("beta2", c.beta2);
  visit("eps", c.eps);
  visit("grad_clip", c.grad_clip);
  visit("eval_interval", c.eval_interval);
  visit("eval_iters", c.eval_iters);
  visit("sample_interval", c.sample_interval);
  visit("log_interval", c.log_interval);
  visit("checkpoint_interval", c.checkpoint_interval);
  visit("keep_checkpoints", c.keep_checkpoints);
  visit("max_bad_steps", c.max_bad_steps);
  visit("seed", c.seed);
  visit("operands", c.operands);
  visit("recompute", c.recompute);
  visit("dropout", c.dropout);
  visit("window", c.window);
}

template <class Config>
nb::dict dict_of(const Config& config) {
  nb::dict result;
  members(config, [&](const char* name, const auto& member) { result[name] = value_of(member); });
  return result;
}

template <class Config>
void update_from(Config& config, const nb::dict& values) {
  for (const auto& [key, value] : values) {
    const std::string wanted = text(key);
    bool known = false;
    std::string names;
    members(config, [&, value = value](const char* name, auto& member) {
      names += (names.empty() ? "" : ", ") + std::string(name);
      if (wanted != name) return;
      known = true;
      set(name, member, value);
    });
    if (!known) fail("expected one of " + names, key);
  }
}

}  // namespace

nb::dict to_dict(const ModelConfig& config) { return dict_of(config); }
void update(ModelConfig& config, const nb::dict& values) { update_from(config, values); }
nb::dict to_dict(const TrainConfig& config) { return dict_of(config); }
void update(TrainConfig& config, const nb::dict& values) { update_from(config, values); }

}  // namespace qkv::python
