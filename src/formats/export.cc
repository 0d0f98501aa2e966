// SPDX-License-Identifier: Apache-2.0
#include "formats/export.h"

#include <functional>
#include <stdexcept>

#include "formats/gguf_config.h"
#include "formats/gguf_tokenizer.h"
#include "formats/hf_config.h"
#include "formats/model_directory.h"
#include "formats/tokenizer_json.h"
#include "text/tokenizer_data.h"

namespace qkv {
namespace {

const char* scope_of(FileFormat format) { return format == FileFormat::gguf ? "[gguf]" : "[hugging face]"; }

void check_tokenizer(FileFormat format, const ModelConfig& config, const Tokenizer& tokenizer, const TextFacts& facts) {
  const TokenizerData& data = tokenizer.data();
  if (format == FileFormat::gguf) {
    GgufWriter unused;
    write_gguf_tokenizer(unused, data, config.vocab_size, facts);
    return;
  }
  if (data.longest_match) throw std::invalid_argument("expected a byte or BPE tokenizer; found a Harris tokenizer");
  tokenizer_json_text(data);
}

// The matching family, if any, and the obstacles to exporting.
struct Export {
  const Family* family = nullptr;
  std::vector<std::string> obstacles;
};

Export export_of(FileFormat format, const ModelConfig& config, const Tokenizer& tokenizer, const TextFacts& facts) {
  Export result;
  const auto check = [&](const std::function<void()>& part) {
    try {
      part();
    } catch (const std::invalid_argument& error) {
      std::string what = error.what();  // without "[gguf] "
      if (what.starts_with('[')) what.erase(0, what.find("] ") + 2);
      result.obstacles.push_back(std::move(what));
    }
  };
  check([&] { result.family = &(format == FileFormat::gguf ? gguf_family_of(config) : hf_family_of(config)); });
  check([&] {
    if (tokenizer.size() > config.vocab_size)
      throw std::invalid_argument("expected a tokenizer of at most vocab_size = " + std::to_string(config.vocab_size) +
                                  " tokens; found " + std::to_string(tokenizer.size()));
  });
  check([&] { check_text_facts(scope_of(format), facts, config); });
  check([&] { check_tokenizer(format, config, tokenizer, facts); });
  return result;
}

}  // namespace

const Family& exported_family(FileFormat format, const ModelConfig& config, const Tokenizer& tokenizer,
                              const TextFacts& facts) {
  const Export found = export_of(format, config, tokenizer, facts);
  if (found.obstacles.empty()) return *found.family;
  std::string text = scope_of(format);
  for (std::size_t i = 0; i < found.obstacles.size(); ++i) text += (i == 0 ? " " : "; ") + found.obstacles[i];
  throw std::invalid_argument(text);
}

std::vector<ExportFacts> export_facts(const ModelConfig& config, const Tokenizer& tokenizer, const TextFacts& facts) {
  std::vector<ExportFacts> all;
  for (const FileFormat format : {FileFormat::hugging_face, FileFormat::gguf}) {
    Export found = export_of(format, config, tokenizer, facts);
    all.push_back({format == FileFormat::gguf ? "GGUF" : "Hugging Face",
                   found.family ? std::string(type_in(*found.family, format)) : "", std::move(found.obstacles)});
  }
  return all;
}

}  // namespace qkv
