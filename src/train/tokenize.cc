// SPDX-License-Identifier: Apache-2.0
// Converts a corpus to a token file: chunks of text are encoded on all threads and written in order.
#include <cstring>
#include <mutex>

#include "qkv/dataset.h"
#include "train/text_chunks.h"
#include "train/token_file.h"

namespace qkv {
namespace {

// Idle encoders, last in, first out, so that a thread usually gets the one it used before.
class EncoderPool {
 public:
  explicit EncoderPool(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  template <class Use>
  void with_encoder(const Use& use) {
    TextEncoder encoder = take();
    use(encoder);
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(encoder));
  }

 private:
  TextEncoder take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return TextEncoder(tokenizer_);
    TextEncoder encoder = std::move(free_.back());
    free_.pop_back();
    return encoder;
  }

  const Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::vector<TextEncoder> free_;
};

// The result of a chunk.
struct Encoded {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> packed;  // [ids, width]
  bool begins = false;               // starts a document
  std::int64_t bytes = 0, documents = 0;
};

void pack(const std::vector<std::int32_t>& ids, int width, std::vector<std::uint8_t>& to) {
  to.resize(ids.size() * static_cast<std::size_t>(width));
  if (width == 4) {
    std::memcpy(to.data(), ids.data(), to.size());
    return;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::uint16_t>(ids[i]);
    std::memcpy(to.data() + 2 * i, &id, sizeof id);
  }
}

class Job {
 public:
  Job(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& path, const TokenDataset::Progress& progress)
      : corpus_(corpus),
        tokenizer_(tokenizer),
        progress_(progress),
        begin_token_(tokenizer.begin_token() == tokenizer.end_token() ? -1 : tokenizer.begin_token()),
        encoders_(tokenizer),
        writer_(path, tokenizer.size()),
        results_(static_cast<std::size_t>(wave_size())) {}

  void run() {
    TokenFileHeader header{};
    const Counted training = encode(CorpusPart::training), validation = encode(CorpusPart::validation);
    header.training_tokens = static_cast<std::uint64_t>(training.tokens);
    header.validation_tokens = static_cast<std::uint64_t>(validation.tokens);
    header.training_bytes = static_cast<std::uint64_t>(training.bytes);
    header.validation_bytes = static_cast<std::uint64_t>(validation.bytes);
    header.documents = static_cast<std::uint64_t>(documents_);
    header.vocab_size = static_cast<std::uint64_t>(tokenizer_.size());
    header.end_token = tokenizer_.end_token();
    header.cut = static_cast<std::uint64_t>(corpus_.bytes(CorpusPart::training));
    header.source_checksum = source_.value();
    writer_.commit(header, tokenizer_.json());
  }

 private:
  struct Counted {
    std::int64_t tokens = 0, bytes = 0;
  };

  Counted encode(CorpusPart part) {
    Counted counted;
    const std::int64_t first = writer_.tokens();
    ChunkReader reader(corpus_, part);
    for_each_chunk(
        reader,
        [&](const TextChunk& chunk, std::int64_t i) {
          encode_chunk(chunk, reader.rules(), results_[static_cast<std::size_t>(i)]);
        },
        [&](const TextChunk& chunk, std::int64_t i) {
          const Encoded& result = results_[static_cast<std::size_t>(i)];
          add_to_checksum(chunk);
          // The end token separates documents; the one before the first document of a chunk is added here.
          if (result.begins && writer_.tokens() > first && tokenizer_.end_token() >= 0) {
            pack({tokenizer_.end_token()}, writer_.width(), mark_);
            writer_.append(mark_);
          }
          writer_.append(result.packed);
          counted.bytes += result.bytes;
          documents_ += result.documents;
          done_ += static_cast<std::int64_t>(chunk.bytes.size());
          if (progress_) progress_(done_, corpus_.bytes());
        });
    counted.tokens = writer_.tokens() - first;
    return counted;
  }

  void encode_chunk(const TextChunk& chunk, const TextRules& rules, Encoded& to) {
    to.ids.clear();
    to.begins = false;
    to.bytes = to.documents = 0;
    encoders_.with_encoder([&](TextEncoder& encoder) {
      each_text(chunk, rules, [&](std::string_view text, bool begins) {
        if (to.bytes == 0) to.begins = begins;
        if (begins && to.bytes > 0 && tokenizer_.end_token() >= 0) to.ids.push_back(tokenizer_.end_token());
        if (begins && begin_token_ >= 0) to.ids.push_back(begin_token_);
        encoder.encode(text, to.ids, SpecialTokens::as_text, !begins);
        to.bytes += static_cast<std::int64_t>(text.size());
        to.documents += begins;
      });
    });
    pack(to.ids, writer_.width(), to.packed);
  }

  // Same as Corpus::checksum: each file's size, then its bytes.
  void add_to_checksum(const TextChunk& chunk) {
    if (chunk.at == 0) {
      const auto size = static_cast<std::uint64_t>(chunk.file->size);
      source_.add(&size, sizeof size);
    }
    source_.add(chunk.bytes.data(), chunk.bytes.size());
  }

  const Corpus& corpus_;
  const Tokenizer& tokenizer_;
  const TokenDataset::Progress& progress_;
  std::int32_t begin_token_;
  EncoderPool encoders_;
  TokenFileWriter writer_;
  std::vector<Encoded> results_;
  std::vector<std::uint8_t> mark_;
  Checksum source_;
  std::int64_t documents_ = 0, done_ = 0;
};

}  // namespace

TokenDataset TokenDataset::tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& path,
                                    const Progress& progress) {
  Job(corpus, tokenizer, path, progress).run();
  return open(path);
}

}  // namespace qkv
