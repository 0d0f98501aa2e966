// SPDX-License-Identifier: Apache-2.0
#include "qkv/chat_file.h"

#include <filesystem>

#include "formats/gguf.h"
#include "formats/gguf_tokenizer.h"
#include "formats/strict_json.h"
#include "os/mapped_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::size_t kLargestConfig = std::size_t{1} << 26;  // tokenizer_config.json lists every added token

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

void check_size(const std::string& path, std::size_t size) {
  if (size > largest_chat_template)
    throw FileError(path, "expected a template of at most " + std::to_string(largest_chat_template) + " bytes; found " +
                              std::to_string(size));
}

std::string whole_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::file_size(path, ignored) == 0) return "";
  const MappedFile file(path);
  check_size(path, file.size());
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

std::string from_config(const std::string& path) {
  const nlohmann::json json = load_json(path, kLargestConfig);
  const JsonPlace file(path, json);
  file.object();
  if (!file.has("chat_template")) return "";
  const JsonPlace place = file.at("chat_template");
  if (place.is_string()) return place.string();
  for (const JsonPlace& named : place.list())
    if (named.at("name").string() == "default") return named.at("template").string();
  return "";
}

}  // namespace

std::string load_chat_template(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    const std::string jinja = path + "/chat_template.jinja", config = path + "/tokenizer_config.json";
    if (is_file(jinja)) return whole_file(jinja);
    const std::string text = is_file(config) ? from_config(config) : "";
    check_size(config, text.size());
    return text;
  }
  if (!is_gguf_file(path)) return "";
  const GgufFile file(path);
  return read_gguf_chat_template(*file);
}

}  // namespace qkv
