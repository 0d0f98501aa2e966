// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

#include "generate/sequence.h"
#include "qkv/generate.h"

namespace qkv {
namespace {

void require_one(const char* name, std::int64_t value) {
  if (value < 1) {
    throw std::invalid_argument(std::string("[generate] expected ") + name + " of at least 1; found " +
                                std::to_string(value));
  }
}

class Writers {
 public:
  Writers(Model& model, std::span<const std::vector<std::int32_t>> prompts, const GenerateOptions& options,
          const BatchOptions& batch, const std::function<bool(std::int64_t, std::int32_t)>& on_token,
          const TextContext* shared)
      : model_(model), prompts_(prompts), options_(options), batch_(batch), on_token_(on_token), shared_(shared) {}

  std::vector<GenerateResult> run() {
    const std::int64_t texts = static_cast<std::int64_t>(prompts_.size()) * batch_.samples;
    results_.resize(static_cast<std::size_t>(texts));
    for (std::int64_t next = 0; next < texts || !running_.empty();) {
      while (next < texts && static_cast<std::int64_t>(running_.size()) < batch_.at_once) start(next++);
      read();
      for (Text& text : running_) draw(text);
      std::erase_if(running_, [](const Text& text) { return text.sequence->ended(); });
    }
    return std::move(results_);
  }

 private:
  struct Text {
    std::int64_t number;
    std::unique_ptr<Sequence> sequence;
    bool is_read;
  };

  void start(std::int64_t number) {
    const std::int64_t sample = number % batch_.samples;
    const std::uint64_t stream = options_.sampler.stream + static_cast<std::uint64_t>(sample);
    if (sample == 0) {
      const std::vector<std::int32_t>& prompt = prompts_[static_cast<std::size_t>(number / batch_.samples)];
      auto first = std::make_unique<Sequence>(model_, prompt, options_, stream, shared_ ? *shared_ : TextContext());
      if (batch_.samples > 1) {  // read now, so that the others begin with a copy of it
        if (!first->ended()) {
          model_.read(first->unread(), first->state(), first->logits());
          first->has_read();
        }
        prompt_ = std::move(first);
      } else {
        running_.push_back({number, std::move(first), false});
      }
    }
    if (batch_.samples == 1) return;
    auto copy = sample == batch_.samples - 1 ? std::move(prompt_) : std::make_unique<Sequence>(*prompt_);
    copy->use_stream(stream, sample == 0);
    running_.push_back({number, std::move(copy), true});
  }

  // Whatever the texts that go on have not read: one token each, and the prompts of new ones. Together as long as that
  // is little, so that activations stay small.
  void read() {
    constexpr std::size_t kTokensAtOnce = 2048;
    std::vector<ReadPart> parts;
    std::size_t tokens = 0;
    const auto flush = [&] {
      if (!parts.empty()) model_.read_batch(parts);
      parts.clear();
      tokens = 0;
    };
    for (Text& text : running_) {
      Sequence& s = *text.sequence;
      if (s.ended() || text.is_read) continue;
      if (tokens + s.unread().size() > kTokensAtOnce) flush();
      parts.push_back({s.unread(), &s.state(), s.logits()});
      tokens += s.unread().size();
    }
    flush();
  }

  void draw(Text& text) {
    Sequence& s = *text.sequence;
    if (!s.ended()) {
      s.has_read();
      s.draw([&](std::int32_t token) { return !on_token_ || on_token_(text.number, token); });
      text.is_read = false;
    }
    if (!s.ended()) return;
    GenerateResult& result = results_[static_cast<std::size_t>(text.number)];
    result = s.take_result();
    if (batch_.on_end) batch_.on_end(text.number, result);
  }

  Model& model_;
  std::span<const std::vector<std::int32_t>> prompts_;
  const GenerateOptions& options_;
  const BatchOptions& batch_;
  const std::function<bool(std::int64_t, std::int32_t)>& on_token_;
  const TextContext* shared_;
  std::vector<Text> running_;
  std::unique_ptr<Sequence> prompt_;  // read, for samples that are still to begin
  std::vector<GenerateResult> results_;
};

}  // namespace

std::vector<GenerateResult> generate_batch(Model& model, std::span<const std::vector<std::int32_t>> prompts,
                                           const GenerateOptions& options, const BatchOptions& batch,
                                           const std::function<bool(std::int64_t, std::int32_t)>& on_token,
                                           const TextContext* shared) {
  require_one("at_once", batch.at_once);
  require_one("samples", batch.samples);
  for (const std::vector<std::int32_t>& prompt : prompts) check_request(model.config(), prompt, options);
  return Writers(model, prompts, options, batch, on_token, shared).run();
}

}  // namespace qkv
