// SPDX-License-Identifier: Apache-2.0
#include "qkv/report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "formats/strict_json.h"
#include "os/atomic_file.h"
#include "os/machine.h"
#include "os/mapped_file.h"
#include "page/training_data.h"
#include "page/training_page.h"
#include "qkv/error.h"
#include "qkv/kernels.h"
#include "qkv/threads.h"
#include "train/checkpoint_directory.h"
#include "train/run_log.h"
#include "train/run_notes.h"
#include "train/run_state.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kShortestPause = 5;  // minimum seconds between two reports
constexpr double kCostShare = 0.01;   // maximum share of the time spent writing reports
constexpr int kRefreshSeconds = 10;

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string value_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.dump();
}

void add_facts(std::vector<RunFacts>& all, const RunFacts& facts) {
  const auto same = [&](const RunFacts& there) { return there.title == facts.title; };
  const auto found = std::find_if(all.begin(), all.end(), same);
  if (found == all.end()) {
    all.push_back(facts);
  } else {
    found->rows.insert(found->rows.end(), facts.rows.begin(), facts.rows.end());
  }
}

RunFacts json_facts(const std::string& title, const nlohmann::ordered_json& object) {
  RunFacts facts{title, {}};
  if (!object.is_object()) return facts;
  for (const auto& [name, value] : object.items()) {
    if (name != "qkv_format" && name != "model_type") facts.rows.emplace_back(name, value_text(value));
  }
  return facts;
}

RunFacts model_facts(const std::string& directory, const ModelConfig& config) {
  std::string path = directory + "/config.json";
  if (const std::string base = base_path(directory) + "/config.json";  // a run with adapters
      !std::filesystem::exists(path) && std::filesystem::exists(base))
    path = base;
  load_json(path, std::size_t{1} << 20);  // validates the file; parsed below in its own key order
  std::string text;
  RunFacts facts{"Model", {{"parameters", grouped(parameter_count(config))}}};
  const MappedFile file(path);
  text.assign(reinterpret_cast<const char*>(file.data()), file.size());
  const RunFacts fields = json_facts("Model", nlohmann::ordered_json::parse(text, nullptr, false));
  facts.rows.insert(facts.rows.end(), fields.rows.begin(), fields.rows.end());
  return facts;
}

// With derived values filled in, as described in train.h.
RunFacts training_facts(TrainConfig config) {
  if (config.min_lr < 0) config.min_lr = config.learning_rate / 10;
  if (config.warmup_steps < 0) config.warmup_steps = std::min<std::int64_t>(500, config.steps / 20);
  if (config.decay_steps == 0) config.decay_steps = config.steps;
  const auto state = nlohmann::ordered_json::parse(run_state_text(RunState(), config), nullptr, false);
  return json_facts("Training", state.value("config", nlohmann::ordered_json()));
}

RunFacts machine_facts() {
  const std::string gigabytes = std::to_string(std::llround(static_cast<double>(total_memory()) / 1e8));
  RunFacts facts{"Machine", {}};
  if (!cpu_name().empty()) facts.rows.emplace_back("processor", cpu_name());
  facts.rows.emplace_back("cores", std::to_string(core_count()));
  facts.rows.emplace_back("threads", std::to_string(num_threads()));
  if (total_memory() > 0) {
    facts.rows.emplace_back("memory", gigabytes.substr(0, gigabytes.size() - 1) + "." + gigabytes.back() + " GB");
  }
  facts.rows.emplace_back("kernels", std::string(kernel_set()));
  return facts;
}

std::string name_of(const std::string& directory) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(directory, error);
  const std::string name = (error ? fs::path(directory) : path).filename().string();
  return name.empty() ? directory : name;
}

// Builds the page from the run's files.
TrainingPage page_of(const std::string& directory, const RunLog& log, const RunNotes& notes) {
  TrainingPage page = log.page();
  page.title = name_of(directory);
  page.written = now();
  page.steps = std::max(notes.steps, page.step);
  if (!notes.starts.empty()) {
    page.phase = notes.starts.back().end;
    page.message = notes.starts.back().message;
  }
  Marks resumed("resumed");
  std::vector<std::int64_t> steps;
  for (std::size_t i = 1; i < notes.starts.size(); ++i) steps.push_back(notes.starts[i].step);
  std::sort(steps.begin(), steps.end());
  for (const std::int64_t step : steps) resumed.add(step);
  page.marks.push_back(std::move(resumed));
  for (const RunFacts& facts : notes.facts) page.facts.push_back({facts.title, facts.rows});
  if (log.unreadable_lines() > 0) {
    page.facts.push_back(
        {"Note", {{"lines of metrics.jsonl that could not be read", std::to_string(log.unreadable_lines())}}});
  }
  if (log.recent_ms() > 0) page.seconds_left = static_cast<double>(page.steps - page.step) * log.recent_ms() / 1000;
  return page;
}

std::string page_path(const std::string& directory) { return directory + "/report.html"; }

}  // namespace

struct RunReport::Impl {
  std::string directory;
  RunLog log;
  RunNotes notes;
  Clock::time_point start = Clock::now(), last{};
  double cost = 0;  // seconds to write the last report
  bool written = false;

  explicit Impl(const std::string& where) : directory(where), log(where + "/metrics.jsonl") {}

  void write(bool running) {
    const Clock::time_point begin = Clock::now();
    log.read_new_lines();
    TrainingPage page = page_of(directory, log, notes);
    if (running) {
      page.phase = "running";
      page.refresh_seconds = kRefreshSeconds;
      const std::int64_t done = page.step - notes.starts.back().step;  // once there is something to estimate from
      if (done >= 20) {
        page.seconds_left =
            seconds_since(start) * static_cast<double>(page.steps - page.step) / static_cast<double>(done);
      }
    }
    last = Clock::now();  // a report that cannot be written is not retried at every step
    written = true;
    replace_file(page_path(directory), training_page(page));
    last = Clock::now();
    cost = seconds_since(begin);
  }
};

RunReport::RunReport(const std::string& directory, Trainer& trainer, const std::vector<RunFacts>& facts)
    : impl_(std::make_unique<Impl>(directory)) {
  RunNotes& notes = impl_->notes;
  notes = read_run_notes(directory + "/run.json");
  notes.steps = trainer.config().steps;
  notes.facts = {training_facts(trainer.config()), model_facts(directory, trainer.model().config()), machine_facts()};
  for (const RunFacts& more : facts) add_facts(notes.facts, more);
  notes.starts.push_back({trainer.steps_done(), now(), "", ""});
  write_run_notes(directory + "/run.json", notes);
}

RunReport::~RunReport() = default;
RunReport::RunReport(RunReport&&) noexcept = default;
RunReport& RunReport::operator=(RunReport&&) noexcept = default;

bool RunReport::write_if_due() {
  const double pause = std::max(kShortestPause, impl_->cost / kCostShare);
  if (impl_->written && seconds_since(impl_->last) < pause) return false;
  write();
  return true;
}

void RunReport::write() { impl_->write(true); }

void RunReport::end(RunPhase phase, const std::string& message) {
  RunStart& start = impl_->notes.starts.back();
  start.end = phase == RunPhase::finished  ? "finished"
              : phase == RunPhase::stopped ? "stopped"
              : phase == RunPhase::failed  ? "failed"
                                           : "";
  start.message = message;
  write_run_notes(impl_->directory + "/run.json", impl_->notes);
  impl_->write(phase == RunPhase::running);
}

void write_report(const std::string& directory) {
  const std::string path = directory + "/metrics.jsonl";
  if (!fs::exists(path)) throw FileError(path, "is missing: " + directory + " does not contain a training run");
  RunLog log(path);
  log.read_new_lines();
  replace_file(page_path(directory), training_page(page_of(directory, log, read_run_notes(directory + "/run.json"))));
}

}  // namespace qkv
