// SPDX-License-Identifier: Apache-2.0
#include "train/metrics.h"

#include <fcntl.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "os/atomic_file.h"

namespace qkv {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// The lines of steps up to `step`; reading ends at the first line that is not one of ours.
std::string lines_up_to(std::istream& file, std::int64_t step) {
  std::string kept, line;
  while (std::getline(file, line) && !file.eof()) {
    const Json object = Json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) break;
    if (object["step"].get<std::int64_t>() <= step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t step) : path_(path) {
  if (std::ifstream old(path, std::ios::binary); old) {
    const std::string kept = lines_up_to(old, step);
    old.clear();
    old.seekg(0, std::ios::end);
    if (static_cast<std::int64_t>(old.tellg()) != static_cast<std::int64_t>(kept.size())) replace_file(path, kept);
  }
  file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file_.get() < 0) throw_system_error(path, "cannot be opened for writing", errno);
}

void MetricsFile::append(const std::string& line) {
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(file_.get(), line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_system_error(path_, "cannot be written", errno);
    done += static_cast<std::size_t>(written);
  }
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
  append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace qkv
