// SPDX-License-Identifier: Apache-2.0
#include "train/run_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "os/system_error.h"

namespace qkv {
namespace {

constexpr std::size_t kChunk = std::size_t{64} << 10;
constexpr std::size_t kLongestLine = std::size_t{16} << 20;  // longer lines are not ours
constexpr std::size_t kLongestSample = 4000, kMaxSamples = 200, kMaxSampleBytes = std::size_t{256} << 10;
enum MarkKind : std::size_t { kSkipped, kSpike, kRepeats };  // indices into TrainingPage::marks

// The fields of one line that the report shows.
struct Line {
  std::optional<std::int64_t> step;
  std::optional<double> loss, grad_norm, learning_rate, ms, tokens_per_s, peak_fraction, val_loss, bits_per_byte, spike;
  bool is_step = false, best = false, skipped = false, repeats = false;
  std::optional<std::string> sample;
};

// Fills a Line without building a tree: a long run has millions of lines.
class LineReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit LineReader(Line& line) : line_(line) {}

  bool null() override { return true; }
  bool boolean(bool value) override {
    if (depth_ != 1) return true;
    if (key_ == "best") line_.best = value;
    if (key_ == "skipped") line_.skipped = value;
    if (key_ == "repeats") line_.repeats = value;
    return true;
  }
  bool number_integer(number_integer_t value) override { return integer(value, static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    const bool fits = value <= static_cast<number_unsigned_t>(INT64_MAX);
    return integer(fits ? static_cast<std::int64_t>(value) : -1, static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool string(string_t& value) override {
    if (depth_ == 1 && key_ == "sample") line_.sample = std::move(value);
    return true;
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return deeper(); }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override { return depth_ > 0 && deeper(); }
  bool end_array() override { return --depth_, true; }
  bool key(string_t& value) override {
    if (depth_ == 1) key_ = value;
    if (depth_ == 1 && key_ == "loss") line_.is_step = true;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool deeper() { return ++depth_ <= 32; }
  bool integer(std::int64_t whole, double value) {
    if (depth_ == 1 && key_ == "step") line_.step = whole;
    return number(value);
  }
  bool number(double value) {
    if (depth_ != 1) return depth_ > 0;
    if (key_ == "loss") line_.loss = value;
    if (key_ == "grad_norm") line_.grad_norm = value;
    if (key_ == "learning_rate") line_.learning_rate = value;
    if (key_ == "ms") line_.ms = value;
    if (key_ == "tokens_per_s") line_.tokens_per_s = value;
    if (key_ == "peak_fraction") line_.peak_fraction = value;
    if (key_ == "val_loss") line_.val_loss = value;
    if (key_ == "bits_per_byte") line_.bits_per_byte = value;
    if (key_ == "spike") line_.spike = value;
    return true;
  }

  Line& line_;
  std::string key_;
  int depth_ = 0;
};

// At most `most` bytes, cut at a character boundary and marked as cut.
std::string shortened(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text + " …";
}

// "z = 9.2": standard deviations of the loss above the previous ones.
std::string spike_text(double z) {
  char text[40];
  std::snprintf(text, sizeof text, "z = %.1f", z);
  return text;
}

void put(const std::optional<double>& from, double& to) { to = from.value_or(kUnknown); }

}  // namespace

void RunLog::clear() {
  offset_ = unreadable_ = 0;
  recent_ms_ = 0;
  sample_bytes_ = 0;
  page_ = TrainingPage();
  page_.validation_losses = page_.bits_per_byte = Series(1024);
  page_.marks = {Marks("skipped"), Marks("spike"), Marks("repeats")};
}

void RunLog::read_new_lines() {
  const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno != ENOENT) throw_system_error(path_, "cannot be opened for reading", errno);
    return clear();
  }
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) throw_system_error(path_, "cannot be read", errno);
  if (facts.st_ino != inode_ || facts.st_size < offset_) clear();
  inode_ = facts.st_ino;
  std::string kept;  // an incomplete last line
  std::vector<char> chunk(kChunk);
  while (true) {
    const ssize_t got = ::pread(file.get(), chunk.data(), kChunk, offset_ + static_cast<off_t>(kept.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error(path_, "cannot be read", errno);
    if (got == 0) return;
    kept.append(chunk.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end; (end = kept.find('\n', begin)) != std::string::npos; begin = end + 1) {
      add_line(std::string_view(kept).substr(begin, end - begin));
    }
    offset_ += static_cast<std::int64_t>(begin);
    kept.erase(0, begin);
    if (kept.size() > kLongestLine) throw FileError(path_, offset_, "a line is longer than 16 MB");
  }
}

void RunLog::add_line(std::string_view text) {
  Line line;
  LineReader reader(line);
  if (!nlohmann::json::sax_parse(text, &reader) || !line.step || *line.step < 0) {
    ++unreadable_;
    return;
  }
  const std::int64_t step = *line.step;
  page_.step = std::max(page_.step, step);
  if (line.is_step) {
    put(line.loss, page_.loss);
    put(line.grad_norm, page_.grad_norm);
    put(line.learning_rate, page_.learning_rate);
    put(line.ms, page_.ms);
    put(line.tokens_per_s, page_.tokens_per_second);
    put(line.peak_fraction, page_.peak_fraction);
    page_.losses.add(step, page_.loss);
    page_.grad_norms.add(step, page_.grad_norm);
    page_.learning_rates.add(step, page_.learning_rate);
    page_.speeds.add(step, page_.tokens_per_second);
    if (line.ms && *line.ms >= 0) {
      recent_ms_ = recent_ms_ > 0 ? recent_ms_ + 0.05 * (*line.ms - recent_ms_) : *line.ms;
      page_.seconds_done = (std::isfinite(page_.seconds_done) ? page_.seconds_done : 0) + *line.ms / 1000;
    }
  }
  if (line.skipped) page_.marks[kSkipped].add(step);
  if (line.spike) page_.marks[kSpike].add(step, spike_text(*line.spike));
  if (line.val_loss) {
    page_.validation_losses.add(step, *line.val_loss);
    page_.bits_per_byte.add(step, line.bits_per_byte.value_or(kUnknown));
    if (line.best) {
      page_.best_step = step;
      page_.best_loss = *line.val_loss;
      put(line.bits_per_byte, page_.best_bits_per_byte);
    }
  }
  if (line.repeats) page_.marks[kRepeats].add(step);
  if (line.sample) add_sample(step, std::move(*line.sample), line.repeats);
}

// Bounded: when there are too many, every other older one is removed; the first is kept.
void RunLog::add_sample(std::int64_t step, std::string text, bool repeats) {
  std::vector<PageSample>& samples = page_.samples;
  samples.push_back({step, shortened(std::move(text), kLongestSample), repeats});
  sample_bytes_ += samples.back().text.size();
  if (samples.size() <= kMaxSamples && sample_bytes_ <= kMaxSampleBytes) return;
  std::vector<PageSample> kept;
  sample_bytes_ = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i % 2 == 1 && i + 1 < samples.size()) continue;
    sample_bytes_ += samples[i].text.size();
    kept.push_back(std::move(samples[i]));
  }
  page_.samples_left_out += static_cast<std::int64_t>(samples.size() - kept.size());
  samples = std::move(kept);
}

}  // namespace qkv
