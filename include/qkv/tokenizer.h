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

// Whether "<|endoftext|>" in a text is thirteen ordinary characters or the control token. The default everywhere is
// as_text, because untrusted text must not contain control tokens.
enum class SpecialTokens : std::uint8_t { as_text, as_ids };

// Immutable, so thread-safe.
class Tokenizer {
 public:
  static Tokenizer bytes();  // 256 tokens with id = byte, and an end token with id 256
  // From tokenizer.json, as `tokenizers` writes it. Throws qkv::FileError.
  static Tokenizer load(const std::string& path);
  // The same from the file's text; `name` replaces the path in errors.
  static Tokenizer from_json(const std::string& name, std::string_view text);
  // Trains byte-level BPE on a text: GPT-2's split, the most frequent pair first, ties to the lowest pair of ids. Ids 0
  // to 255 are the bytes, 256 is the end token, the learned tokens follow. `size` is the total number of ids, at least
  // 257 (else std::invalid_argument); there are fewer if no pair of tokens occurs twice any more. progress (may be
  // empty) receives the number of tokens so far.
  struct Progress {
    void (*report)(void* self, std::int64_t done, std::int64_t total) = nullptr;
    void* self = nullptr;
  };
  static Tokenizer train_bpe(std::string_view text, std::int64_t size, Progress progress);

  // Morpheme segments by Zellig Harris's method ("From phoneme to morpheme", 1955): pieces of GPT-2's split are cut
  // where successor variety and predecessor variety both peak, and the segments that save the most bytes become tokens;
  // encoding is longest match first. Ids: the segments, the 256 bytes, the end token. `size` is the total number of
  // ids, at least 257; there are fewer if no more segments occur twice.
  static Tokenizer train_harris(std::string_view text, std::int64_t size);

  ~Tokenizer();
  Tokenizer(const Tokenizer&);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer) noexcept;

  std::int64_t size() const noexcept;       // number of ids
  std::int32_t end_token() const noexcept;  // -1 if there is none
  // The token that a model expects before every text, -1 if none; encode() does not add it.
  std::int32_t begin_token() const noexcept;
  // decode(encode(text)) == text for every text, unless a loaded tokenizer.json changes it (a space added before the
  // text, spaces stripped around an added token).
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special = SpecialTokens::as_text) const;
  // The ids with the special tokens of the tokenizer's template added (tokenizer.json's TemplateProcessing for one
  // text, or begin_token()); unchanged if there is none.
  std::vector<std::int32_t> with_template(const std::vector<std::int32_t>& ids) const;
  // The bytes of one token, possibly a partial character. Throws std::invalid_argument for an invalid id.
  std::string decode(std::int32_t id) const;
  std::string decode(const std::vector<std::int32_t>& ids) const;
  void save(const std::string& path) const;  // tokenizer.json, atomically
  std::string json() const;                  // the text of that file

  // The complete tokenizer data, for import and export (src/text/tokenizer_data.h).
  static Tokenizer from_data(TokenizerData data);  // throws std::invalid_argument for invalid data
  const TokenizerData& data() const noexcept;

 private:
  friend class TextEncoder;
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// Encodes many texts, with a 2 MB cache of pieces, which makes encoding a long text in parts fast. Same ids as
// Tokenizer::encode. Movable; not thread-safe, so use one per thread.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer);
  ~TextEncoder();
  TextEncoder(TextEncoder&&) noexcept;
  TextEncoder& operator=(TextEncoder&&) noexcept;

  // Appends the ids of `text`. continues: `text` continues the previously encoded text, so that start-of-text handling
  // (e.g. an added space) is not repeated.
  void encode(std::string_view text, std::vector<std::int32_t>& ids, SpecialTokens special = SpecialTokens::as_text,
              bool continues = false);

 private:
  friend class Tokenizer;
  struct State;
  TextEncoder(const Tokenizer& tokenizer, std::size_t sets);
  std::unique_ptr<State> state_;
};

// Buffers the bytes of an incomplete UTF-8 character, so that a stream shows only complete characters. Invalid bytes
// become U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  // text that can be shown
  std::string flush();                       // the rest

 private:
  std::string held_;
};

}  // namespace qkv
