// SPDX-License-Identifier: Apache-2.0
#include "page/training_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "page/text.h"

namespace qkv {
namespace {

template <class Value>
std::string column(const std::vector<Series::Bucket>& buckets, const Value& value) {
  std::string text = "[";
  for (const Series::Bucket& bucket : buckets) {
    if (text.size() > 1) text += ',';
    text += value(bucket);
  }
  return text += ']';
}

// Columns: a, b (first and last step of each bucket), mean, least, greatest; only a and mean if each bucket is one
// step.
std::string series_text(const Series& series) {
  using Bucket = Series::Bucket;
  const std::vector<Bucket>& buckets = series.buckets();
  std::string text = "{\"a\":" + column(buckets, [](const Bucket& b) { return std::to_string(b.first); }) +
                     ",\"mean\":" + column(buckets, [](const Bucket& b) { return json_number(b.mean()); });
  if (std::any_of(buckets.begin(), buckets.end(), [](const Bucket& b) { return b.count > 1; })) {
    text += ",\"b\":" + column(buckets, [](const Bucket& b) { return std::to_string(b.last); }) +
            ",\"least\":" + column(buckets, [](const Bucket& b) { return json_number(b.least); }) +
            ",\"greatest\":" + column(buckets, [](const Bucket& b) { return json_number(b.greatest); });
  }
  return text += '}';
}

}  // namespace

std::string_view mark_label(std::string_view kind) noexcept {
  if (kind == "skipped") return "step skipped: NaN or infinity";
  if (kind == "spike") return "loss spike";
  if (kind == "repeats") return "repetitive sample";
  if (kind == "resumed") return "run resumed";
  return kind;
}

std::string training_data(const TrainingPage& p) {
  std::string text = fmt::format("{{\"step\":{},\"steps\":{},\"written\":{},\"refresh\":{},\n\"series\":{{", p.step,
                                 p.steps, p.written, p.refresh_seconds);
  const std::pair<const char*, const Series*> series[] = {{"loss", &p.losses},
                                                          {"val_loss", &p.validation_losses},
                                                          {"learning_rate", &p.learning_rates},
                                                          {"grad_norm", &p.grad_norms},
                                                          {"tokens_per_s", &p.speeds}};
  const char* comma = "\n";
  for (const auto& [name, values] : series) {
    text += fmt::format("{}\"{}\":{}", comma, name, series_text(*values));
    comma = ",\n";
  }
  text += "},\n\"marks\":[";
  comma = "";
  for (const Marks& marks : p.marks) {
    for (const Marks::Mark& mark : marks.marks()) {
      text +=
          fmt::format("{}{{\"kind\":{},\"label\":{},\"first\":{},\"last\":{},\"count\":{}}}", comma,
                      json_text(marks.kind()), json_text(mark_label(marks.kind())), mark.first, mark.last, mark.count);
      comma = ",\n";
    }
  }
  return text += "]}";
}

std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3 + (number < 0 ? 1U : 0U); at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string duration(double seconds) {
  const auto whole = std::isfinite(seconds) ? std::llround(std::clamp(seconds, 0.0, 1e10)) : 0;
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  const auto minutes = whole / 60;
  if (minutes < 48 * 60) return fmt::format("{} h {} min", minutes / 60, minutes % 60);
  return fmt::format("{} d {} h", minutes / 1440, minutes / 60 % 24);
}

std::string utc_time(std::int64_t seconds) {
  const std::time_t time = std::clamp<std::int64_t>(seconds, 0, 253402300799);  // up to the year 9999
  std::tm parts{};
  char text[32];
  if (!gmtime_r(&time, &parts) || std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) return "";
  return text;
}

}  // namespace qkv
