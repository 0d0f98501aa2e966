// SPDX-License-Identifier: Apache-2.0
#include "qkv/dataset.h"

#include <cstring>
#include <stdexcept>

#include "os/input_file.h"
#include "os/mapped_file.h"
#include "qkv/error.h"
#include "train/token_file.h"

namespace qkv {

TokenDataset TokenDataset::open(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const TokenFileHeader header = read_token_file_header(*file);
  verify_tokens(*file, header);
  const auto width = static_cast<int>(header.width);
  const std::byte* const training = file->data() + sizeof header;
  const std::byte* const validation = training + header.training_tokens * header.width;
  TokenDataset data;
  data.training_ = TokenPart(training, width, static_cast<std::int64_t>(header.training_tokens),
                             static_cast<std::int64_t>(header.training_bytes));
  data.validation_ = TokenPart(validation, width, static_cast<std::int64_t>(header.validation_tokens),
                               static_cast<std::int64_t>(header.validation_bytes));
  data.vocab_size_ = static_cast<std::int64_t>(header.vocab_size);
  data.end_token_ = static_cast<std::int32_t>(header.end_token);
  data.documents_ = static_cast<std::int64_t>(header.documents);
  data.cut_ = static_cast<std::int64_t>(header.cut);
  data.source_checksum_ = header.source_checksum;
  data.checksum_ = header.token_checksum;
  data.path_ = path;
  const std::byte* const tokenizer = file->data() + file->size() - header.tokenizer_bytes;
  data.tokenizer_json_.assign(reinterpret_cast<const char*>(tokenizer), header.tokenizer_bytes);
  data.owner_ = std::move(file);
  return data;
}

bool TokenDataset::is_token_file(const std::string& path) {
  if (is_stream(path)) return false;  // reading would take its bytes away
  try {
    char magic[8] = {};
    return InputFile(path).read(0, magic) == sizeof magic && std::memcmp(magic, "QKVTOKEN", sizeof magic) == 0;
  } catch (const FileError&) {
    return false;
  }
}

TokenDataset TokenDataset::from_tokens(const std::vector<std::int32_t>& training,
                                       const std::vector<std::int32_t>& validation, std::int64_t vocab_size) {
  auto held = std::make_shared<std::vector<std::int32_t>>(training);
  held->insert(held->end(), validation.begin(), validation.end());
  for (const std::int32_t id : *held) {
    if (id < 0 || id >= vocab_size) {
      throw std::invalid_argument("[dataset] expected token ids in [0, " + std::to_string(vocab_size) + "); found " +
                                  std::to_string(id));
    }
  }
  TokenDataset data;
  const auto count = [](const std::vector<std::int32_t>& v) { return static_cast<std::int64_t>(v.size()); };
  data.training_ = TokenPart(held->data(), 4, count(training), count(training));
  data.validation_ = TokenPart(held->data() + training.size(), 4, count(validation), count(validation));
  data.vocab_size_ = vocab_size;
  BlockChecksum checksum;
  checksum.add(held->data(), held->size() * sizeof(std::int32_t));
  data.checksum_ = checksum.value();
  data.owner_ = std::move(held);
  return data;
}

std::optional<Tokenizer> TokenDataset::tokenizer() const {
  if (tokenizer_json_.empty()) return std::nullopt;
  return Tokenizer::from_json(path_, tokenizer_json_);
}

}  // namespace qkv
