// SPDX-License-Identifier: Apache-2.0
#include "train/run_state.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "qkv/error.h"
#include "qkv/train_config.h"
#include "train/loss_spike.h"

namespace qkv {
namespace {

using Json = nlohmann::ordered_json;

// Calls visit(key, member) for each member, so that writing and reading stay consistent.
template <class State, class Visit>
void each_count(State& s, const Visit& visit) {
  visit("step", s.step);
  visit("updates", s.updates);
  visit("next_sequence", s.next_sequence);
  visit("tokens", s.tokens);
  visit("evaluated_step", s.evaluated_step);
  visit("best_step", s.best_step);
}

// Reads members of `object` by type; throws std::invalid_argument with the offending key.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  void operator()(const char* key, std::int64_t& value) const {
    const Json& found = member(key);
    if (!found.is_number_integer()) refuse(key, "an integer");
    value = found.get<std::int64_t>();
  }
  void operator()(const char* key, std::uint64_t& value) const {
    const Json& found = member(key);
    if (!found.is_number_unsigned()) refuse(key, "an integer of at least 0");
    value = found.get<std::uint64_t>();
  }
  void operator()(const char* key, double& value) const {
    const Json& found = member(key);
    if (!found.is_number()) refuse(key, "a number");
    value = found.get<double>();
  }
  void operator()(const char* key, std::string& value) const {
    const Json& found = member(key);
    if (!found.is_string()) refuse(key, "a name");
    value = found.get<std::string>();
  }
  void operator()(const char* key, Schedule& value) const {
    const Json& found = member(key);
    if (!found.is_string()) refuse(key, "a schedule's name");
    value = schedule_from(found.get<std::string>());
  }
  void operator()(const char* key, bool& value) const {
    const Json& found = member(key);
    if (!found.is_boolean()) refuse(key, "true or false");
    value = found.get<bool>();
  }
  void operator()(const char* key, DType& value) const {
    const Json& found = member(key);
    if (!found.is_string()) refuse(key, "an element type's name");
    value = dtype_from_name(found.get<std::string>());
  }
  const Json& member(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(key, "to be present");
    return *found;
  }
  [[noreturn]] static void refuse(const char* key, const char* expected) {
    throw std::invalid_argument(std::string("expected '") + key + "' " + (expected[0] == 't' ? "" : "to be ") +
                                expected);
  }

 private:
  const Json& object_;
};

}  // namespace

std::string run_state_text(const RunState& state, const TrainConfig& config) {
  Json json, options;
  each_count(state, [&](const char* key, std::int64_t value) { json[key] = value; });
  json["best_loss"] = std::isfinite(state.best_loss) ? Json(state.best_loss) : Json(nullptr);
  json["recent_losses"] = state.recent_losses;
  json["data_checksum"] = state.data_checksum;
  const auto put = [&](const char* key, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Schedule>) {
      options[key] = std::string(to_string(value));
    } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, DType>) {
      options[key] = std::string(dtype_name(value));
    } else {
      options[key] = value;
    }
  };
  for_each_member(config, put);
  json["config"] = std::move(options);
  return json.dump();
}

SavedRun parse_run_state(const std::string& path, const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  SavedRun run;
  try {
    if (!json.is_object()) throw std::invalid_argument("expected a JSON object");
    const Reader reader(json);
    each_count(run.state, reader);
    const Json& best = reader.member("best_loss");
    if (!best.is_null()) reader("best_loss", run.state.best_loss);
    const Json& recent = reader.member("recent_losses");
    if (!recent.is_array() || recent.size() > kSpikeWindow) Reader::refuse("recent_losses", "a short list");
    for (const Json& loss : recent) {
      if (!loss.is_number()) Reader::refuse("recent_losses", "numbers");
      run.state.recent_losses.push_back(loss.get<double>());
    }
    if (json.contains("data_checksum")) reader("data_checksum", run.state.data_checksum);  // absent in older files
    const Json& options = reader.member("config");
    if (!options.is_object()) Reader::refuse("config", "an object");
    for_each_member(run.config, [&, members = Reader(options)](const char* key, auto& member) {
      const std::string_view name = key;
      const bool younger = name == "window" || name == "optimizer" || name == "muon_momentum";  // absent in older files
      if (younger && !options.contains(key)) return;
      members(key, member);
    });
    TrainConfig checked = run.config;  // older runs may have a minimum above the peak; a resumed one must change it
    if (checked.min_lr > checked.learning_rate) checked.min_lr = -1;
    validate(checked);
    each_count(run.state, [](const char* key, std::int64_t value) {
      if (value < 0) Reader::refuse(key, "at least 0");
    });
  } catch (const std::invalid_argument& error) {
    throw FileError(path, std::string("the training state is not valid: ") + error.what());
  }
  return run;
}

}  // namespace qkv
