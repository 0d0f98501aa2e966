// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back. Text is bytes: NUL and invalid UTF-8 pass through unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

struct TokenizerData;

// Whether "<|endoftext|>" in a text is thirteen characters like any others or the control token. Text of unknown origin
// must be the former, so that is the default everywhere.
enum class SpecialTokens : std::uint8_t { as_text, as_ids };

// Immutable once made, so any number of threads may use one.
class Tokenizer {
 public:
  static Tokenizer bytes();  // 256 tokens, id = byte, and an end token, id 256
  // From tokenizer.json, as `tokenizers` writes it. Throws qkv::FileError.
  static Tokenizer load(const std::string& path);
  // The same of the file's text; `name` stands for the path in errors.
  static Tokenizer from_json(const std::string& name, std::string_view text);
  // Byte-level BPE learnt from a text: GPT-2's split, the most frequent pair first, ties to the lowest pair of ids.
  // Ids 0 to 255 are the bytes, 256 is the end token, the learnt ones follow. `size` counts them all, so it is at least
  // 257 (else std::invalid_argument); there are fewer when no pair of tokens occurs twice any more. progress (may be
  // empty) is told how many tokens there are so far.
  struct Progress {
    void (*report)(void* self, std::int64_t done, std::int64_t total) = nullptr;
    void* self = nullptr;
  };
  static Tokenizer train_bpe(std::string_view text, std::int64_t size, Progress progress);

  // Morpheme segments as Zellig Harris found them ("From phoneme to morpheme", 1955): pieces of GPT-2's split are cut
  // where the variety of what may follow and of what may have come before both peak, and the segments that save the
  // most bytes become tokens; text is then read longest match first. Ids: the segments, the 256 bytes, the end token.
  // `size` counts them all and is at least 257; there are fewer when no more segments occur twice.
  static Tokenizer train_harris(std::string_view text, std::int64_t size);

  ~Tokenizer();
  Tokenizer(const Tokenizer&);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer) noexcept;

  std::int64_t size() const noexcept;       // number of ids
  std::int32_t end_token() const noexcept;  // -1 if there is none
  // The token that a model expects before every text, -1 if none; encode() does not put it there.
  std::int32_t begin_token() const noexcept;
  // decode(encode(text)) == text for every text, unless a loaded tokenizer.json asks for more (a space put before the
  // text, spaces taken away around an added token).
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special = SpecialTokens::as_text) const;
  // The ids of a text with what the tokenizer's template puts around them (tokenizer.json's TemplateProcessing for one
  // text, or begin_token()); the ids themselves if there is none.
  std::vector<std::int32_t> with_template(const std::vector<std::int32_t>& ids) const;
  // The bytes of one token, which may be part of a character. Throws std::invalid_argument on an id that is none.
  std::string decode(std::int32_t id) const;
  std::string decode(const std::vector<std::int32_t>& ids) const;
  void save(const std::string& path) const;  // tokenizer.json, atomically
  std::string json() const;                  // its text

  // All that it is made of, for those who read and write the files of other programs (src/text/tokenizer_data.h).
  static Tokenizer from_data(TokenizerData data);  // throws std::invalid_argument on what cannot be a tokenizer
  const TokenizerData& data() const noexcept;

 private:
  friend class TextEncoder;
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// Encodes one text after another and remembers pieces that it met (in 2 MB), which is what makes long texts in parts
// fast. The ids are those of Tokenizer::encode. Movable; one thread at a time, so give each thread its own.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer);
  ~TextEncoder();
  TextEncoder(TextEncoder&&) noexcept;
  TextEncoder& operator=(TextEncoder&&) noexcept;

  // Appends the ids of `text`. continues: it goes on from a text encoded before, so that what a tokenizer does at the
  // beginning of a text (a space put before it) is not done again.
  void encode(std::string_view text, std::vector<std::int32_t>& ids, SpecialTokens special = SpecialTokens::as_text,
              bool continues = false);

 private:
  friend class Tokenizer;
  struct State;
  TextEncoder(const Tokenizer& tokenizer, std::size_t sets);
  std::unique_ptr<State> state_;
};

// Holds back the bytes of an unfinished UTF-8 character, so that a stream shows whole characters only. Bytes that can
// never become one come out as U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  // what can be shown now
  std::string flush();                       // the rest

 private:
  std::string held_;
};

}  // namespace qkv
