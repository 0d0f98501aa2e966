// SPDX-License-Identifier: Apache-2.0
// Readers of model files.
#include <algorithm>
#include <filesystem>
#include <span>
#include <stdexcept>

#include "formats/families/andrea.h"
#include "formats/safetensors.h"
#include "formats/tensor_files.h"
#include "fuzz/format_seeds.h"
#include "fuzz/gguf_case.h"
#include "fuzz/reader_case.h"
#include "fuzz/reader_folder.h"
#include "qkv/andrea.h"
#include "qkv/array_file.h"
#include "qkv/chat_file.h"
#include "qkv/chat_template.h"
#include "qkv/error.h"
#include "qkv/lora.h"
#include "qkv/model_file.h"
#include "text/tokenizer_data.h"

namespace qkv::test {
namespace {

void read_safetensors(std::string_view bytes) {
  const SafetensorsFile file(folder().write("f.safetensors", bytes));
  for (const auto& entry : file.tensors()) {
    touch(entry.data, entry.bytes);
    try {
      file.read(entry.name);
    } catch (const FileError&) {  // a type or rank that qkv does not support
    }
  }
}

void read_index(std::string_view bytes) {
  static const bool shards_are_there = write_shards();
  static_cast<void>(shards_are_there);
  const TensorFiles files = TensorFiles::open_index(folder().write("model.safetensors.index.json", bytes));
  for (const std::string_view name : files.names()) {
    files.find(name);
    files.file_of(name);
  }
  files.stored();
}

void read_config(std::string_view bytes) {
  const ModelConfig config = load_config(folder().write("config.json", bytes));
  if (config.positions == Positions::rotary && config.head_dim < 1000) rotary_frequencies(config);
}

// config.json, generation_config.json and tokenizer_config.json, a zero byte after each, then model.safetensors.
void read_directory(std::string_view bytes) {
  static const bool made = std::filesystem::create_directories(folder().path("d"));
  if (made) folder().write("d/tokenizer.json", kTinyTokenizer);
  folder().write("d/config.json", next_part(bytes));
  const std::string_view generation = next_part(bytes);
  folder().write("d/generation_config.json", generation.empty() ? "{}" : generation);
  const std::string_view names = next_part(bytes);
  folder().write("d/tokenizer_config.json", names.empty() ? "{}" : names);
  folder().write("d/model.safetensors", bytes);
  load_model_for_inference(folder().path("d"));
  const LoadedModel loaded = load_model(folder().path("d"));
  for (const Tensor& parameter : loaded.model.parameters()) touch(parameter.raw(), parameter.bytes());
  for (const std::int32_t id : loaded.end_tokens)
    if (id < 0 || id >= loaded.model.config().vocab_size) throw std::logic_error("an end token out of range");
  for (const std::int32_t id : {loaded.named.begin, loaded.named.unknown, loaded.named.padding})
    if (id < -1 || id >= loaded.model.config().vocab_size) throw std::logic_error("a named token out of range");
}

void read_tokenizer(std::string_view bytes) {
  const Tokenizer tokenizer = Tokenizer::from_json("tokenizer.json", bytes);
  constexpr std::string_view kText = "the cat's 12 \xE2\x80\x83 <|endoftext|> \xFF bc\n";
  for (const SpecialTokens special : {SpecialTokens::as_text, SpecialTokens::as_ids}) {
    try {
      tokenizer.decode(tokenizer.with_template(tokenizer.encode(kText, special)));
    } catch (const std::invalid_argument&) {  // a pattern that backtracks forever
    }
  }
  Tokenizer::from_json("written again", tokenizer.json());
}

void read_npy(std::string_view bytes) {
  const Tensor array = load_npy(folder().write("a.npy", bytes));
  touch(array.raw(), array.bytes());
}

// andrea.json (if empty: missing), a zero byte, c.bin.
void read_andrea(std::string_view bytes) {
  static const bool vocabulary_is_there = write_andrea();
  static_cast<void>(vocabulary_is_there);
  const std::string_view layout = next_part(bytes);
  if (layout.empty())
    std::filesystem::remove(folder().path("andrea.json"));
  else
    folder().write("andrea.json", layout);
  const std::string path = folder().write("c.bin", bytes);
  inspect_model(path);
  const AndreaCheckpoint c = load_andrea(path);
  touch(c.model.parameters()[0].raw(), c.model.parameters()[0].bytes());
}

// Segments, a zero byte, andrea.json. The layout is then applied to a checkpoint with its number of parameters.
void read_harris(std::string_view bytes) {
  const Tokenizer tokenizer = load_harris_segments(folder().write("h.json", next_part(bytes)));
  tokenizer.encode("the thing");
  const std::int64_t segments = tokenizer.size() - 257;
  std::filesystem::create_directories(folder().path("h"));
  const std::string checkpoint = folder().path("h/c.bin");  // in a folder without other files
  if (bytes.empty()) {
    ModelConfig known = preset("andrea-12m");
    known.vocab_size = tokenizer.size();
    if (choose_andrea_layout(checkpoint, {}, segments, parameter_count(known)).config.vocab_size != tokenizer.size())
      throw std::logic_error("another vocabulary");
    try {
      choose_andrea_layout(checkpoint, {}, segments, 1);
      throw std::logic_error("a single parameter fits a preset");
    } catch (const FileError&) {
    }
    return;
  }
  AndreaLayout layout = read_andrea_json(folder().write("other.json", bytes));
  std::int64_t count = 1;
  try {
    ModelConfig config = layout.config;
    if (config.vocab_size == 0) config.vocab_size = tokenizer.size();
    config = config.resolved();
    if (config.n_layer < 1000) count = std::min<std::int64_t>(parameter_count(config), 1 << 20);
  } catch (const std::invalid_argument&) {  // refused below
  }
  choose_andrea_layout(checkpoint, layout, segments, count);
}

// adapter_config.json, a zero byte, adapter_model.safetensors.
void read_adapter(std::string_view bytes) {
  std::filesystem::create_directories(folder().path("lora"));
  folder().write("lora/adapter_config.json", next_part(bytes));
  folder().write("lora/adapter_model.safetensors", bytes);
  const LoraAdapters adapters = load_lora(folder().path("lora"), adapted_model());
  for (const Tensor& value : adapters.values) touch(value.raw(), value.bytes());
}

std::vector<std::string> gguf_file_seeds() {
  std::vector<std::string> seeds;
  for (const GgufSeed& seed : gguf_seeds()) seeds.push_back(seed.bytes);
  return seeds;
}

// The number of control tokens among the ids. The last four, <s>, </s>, [INST] and [/INST], are control tokens only in
// some forms; in the others a text may contain them, since this tokenizer treats them as ordinary words.
std::int64_t controls_in(const Tokenizer& tokenizer, ChatForm form, const std::vector<std::int32_t>& ids) {
  const auto end = static_cast<std::int32_t>(tokenizer.size()) - (form >= ChatForm::mistral_v0_1 ? 0
                                                                  : form == ChatForm::llama2     ? 2
                                                                                                 : 4);
  return std::count_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= 256 && id < end; });
}

void talk(ChatForm form, std::string_view system, std::string_view words) {
  static const Tokenizer tokenizer = talking_tokenizer();
  const ChatTemplate chat(form, tokenizer);
  chat.answer_end();
  chat.beginning(system);
  // User text never becomes a control token.
  const auto controls = [&](const std::vector<std::int32_t>& ids) { return controls_in(tokenizer, form, ids); };
  if (controls(chat.question(words, true, system)) != controls(chat.question("", true, "")))
    throw std::logic_error("text became a control token");
}

void read_gguf(std::string_view bytes) {
  if (read_everything(std::as_bytes(std::span(bytes))) == 0) throw FileError("f.gguf", "is not a container");
}

// "j": chat_template.jinja, "g": a GGUF file, or "c": tokenizer_config.json; then the file.
void read_chat(std::string_view bytes) {
  const bool gguf = bytes.starts_with("g");
  const bool jinja = bytes.starts_with("j");
  static const bool made = std::filesystem::create_directories(folder().path("j")) &&
                           std::filesystem::create_directories(folder().path("c"));
  if (!made) throw std::logic_error("no folder");
  bytes.remove_prefix(std::min<std::size_t>(bytes.size(), 1));
  folder().write(jinja ? "j/chat_template.jinja" : gguf ? "g.gguf" : "c/tokenizer_config.json", bytes);
  const std::string text = load_chat_template(folder().path(jinja ? "j" : gguf ? "g.gguf" : "c"));
  const std::string system = default_system_message(text);
  if (const auto form = recognise_chat_form(text)) talk(*form, system, text);
}

}  // namespace

const std::map<std::string, Reader, std::less<>>& readers() {
  static const std::map<std::string, Reader, std::less<>> all = {{"safetensors", {read_safetensors, safetensors_seeds}},
                                                                 {"index", {read_index, index_seeds}},
                                                                 {"config", {read_config, config_seeds}},
                                                                 {"directory", {read_directory, directory_seeds}},
                                                                 {"tokenizer", {read_tokenizer, tokenizer_seeds}},
                                                                 {"npy", {read_npy, npy_seeds}},
                                                                 {"andrea", {read_andrea, andrea_seeds}},
                                                                 {"harris", {read_harris, harris_seeds}},
                                                                 {"adapter", {read_adapter, adapter_seeds}},
                                                                 {"chat", {read_chat, chat_seeds}},
                                                                 {"gguf", {read_gguf, gguf_file_seeds}}};
  return all;
}

}  // namespace qkv::test
