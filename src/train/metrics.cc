// SPDX-License-Identifier: Apache-2.0
#include "train/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "os/atomic_file.h"
#include "os/file_steps.h"
#include "qkv/repetition.h"

namespace qkv {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

constexpr std::size_t kMaxWaiting = 16 << 20;  // limit in bytes; further lines are dropped

// The lines of steps up to `step` and of evaluations up to `evaluated_step`; stops at the first line in another format.
std::string lines_up_to(std::istream& file, std::int64_t step, std::int64_t evaluated_step) {
  std::string kept, line;
  while (std::getline(file, line) && !file.eof()) {
    const Json object = Json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) break;
    if (object["step"].get<std::int64_t>() <= (object.contains("val_loss") ? evaluated_step : step))
      kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t step, std::int64_t evaluated_step) : path_(path) {
  if (std::ifstream old(path, std::ios::binary); old) {
    const std::string kept = lines_up_to(old, step, evaluated_step);
    old.clear();
    old.seekg(0, std::ios::end);
    if (static_cast<std::int64_t>(old.tellg()) != static_cast<std::int64_t>(kept.size())) replace_file(path, kept);
  }
  file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file_.get() < 0) throw_system_error(path, "cannot be opened for writing", errno);
}

void MetricsFile::append(const std::string& line) {
  if (waiting_.size() < kMaxWaiting) waiting_ += line;
  write_waiting();
}

void MetricsFile::write_waiting() {
  std::size_t done = 0;
  while (done < waiting_.size()) {
    file_step("write", path_);
    const ssize_t written = ::write(file_.get(), waiting_.data() + done, waiting_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      if (!failing_) trouble_ = path_ + ": cannot be written: " + std::generic_category().message(errno);
      failing_ = true;
      break;
    }
    done += static_cast<std::size_t>(written);
  }
  if (done > 0) in_line_ = waiting_[done - 1] != '\n';
  waiting_.erase(0, done);
  if (waiting_.empty()) failing_ = false;
}

void MetricsFile::reopen_if_replaced() {
  struct stat open_one {
  }, named{};
  if (::fstat(file_.get(), &open_one) == 0 && ::stat(path_.c_str(), &named) == 0 && open_one.st_ino == named.st_ino &&
      open_one.st_dev == named.st_dev)
    return;
  const int number = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (number < 0) return;  // retried next time
  file_.reset(number);
  if (in_line_) waiting_.erase(0, waiting_.find('\n') + 1);
  in_line_ = false;
  write_waiting();
}

void MetricsFile::write(const StepReport& report, double flops_fraction) {
  Json line;
  line["step"] = report.step;
  line["loss"] = number(report.loss);
  line["grad_norm"] = number(report.grad_norm);
  line["learning_rate"] = report.learning_rate;
  line["ms"] = number(report.seconds * 1e3);
  line["tokens_per_s"] = number(static_cast<double>(report.tokens) / report.seconds);
  if (flops_fraction >= 0) line["peak_fraction"] = number(flops_fraction);
  if (report.skipped) line["skipped"] = true;
  if (report.spike > 0) line["spike"] = report.spike;
  append(line.dump() + "\n");
}

void MetricsFile::write(const EvalReport& report) {
  Json line;
  line["step"] = report.step;
  line["val_loss"] = number(report.loss);
  line["bits_per_byte"] = number(report.bits_per_byte);
  line["val_tokens"] = report.tokens;
  line["best"] = report.best;
  append(line.dump() + "\n");
}

void MetricsFile::write_sample(std::int64_t step, const std::string& text) {
  Json line;
  line["step"] = step;
  line["sample"] = text;
  line["repetition"] = repetition(text);
  if (repetition(text) >= kRepetitionThreshold) line["repeats"] = true;
  append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace qkv
