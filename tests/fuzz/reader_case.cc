// SPDX-License-Identifier: Apache-2.0
#include "fuzz/reader_case.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>

#include "formats/andrea_layout.h"
#include "formats/safetensors.h"
#include "formats/tensor_files.h"
#include "qkv/andrea.h"
#include "qkv/array_file.h"
#include "qkv/error.h"
#include "qkv/lora.h"
#include "qkv/model_file.h"
#include "text/tokenizer_data.h"

namespace qkv::test {
namespace {

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": cannot be opened");
  return {std::istreambuf_iterator<char>(in), {}};
}

constexpr const char* kGolden = QKV_SOURCE_DIR "/tests/formats/golden/";

// A folder of valid files in memory (tmpfs where there is one), in which one file is the input.
class Folder {
 public:
  Folder() {
    const bool memory = std::filesystem::exists("/dev/shm");
    path_ = (memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) + "/qkv-fuzz-" +
            std::to_string(getpid());
    std::filesystem::create_directories(path_);
    ModelConfig config;
    config.n_layer = config.n_head = 1;
    config.d_model = 2;
    config.d_ff = config.ctx_len = 2;
    config.vocab_size = 259;
    model_.emplace(config);
    write("harris_segments.json", R"(["the", "ing"])");
    save_andrea(path_ + "/c.bin", *model_, load_harris_segments(path_ + "/harris_segments.json"), {}, 3, {}, {});
    write("one.safetensors", safetensors("a"));
    write("two.safetensors", safetensors("b"));
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  const std::string& write(const std::string& name, std::string_view bytes) {
    last_ = path(name);
    std::ofstream(last_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return last_;
  }
  std::string safetensors(const std::string& name) const {
    const Tensor a({2, 3}), b({2}, DType::boolean), c(Dims{}, DType::f16);
    write_safetensors(path_ + "/seed", {{name, a}, {name + "x", b}, {name + "y", c}}, {{"k", "v"}});
    return read_all(path_ + "/seed");
  }

 private:
  std::string path_, last_;
  std::optional<Model> model_;
};

Folder& folder() {
  static Folder only;
  return only;
}

unsigned sum_of(const void* data, std::size_t bytes) {
  unsigned sum = 0;
  for (std::size_t i = 0; i < bytes; ++i) sum += static_cast<const unsigned char*>(data)[i];
  return sum;
}
volatile unsigned seen;

void read_safetensors(std::string_view bytes) {
  const SafetensorsFile file(folder().write("f.safetensors", bytes));
  for (const auto& entry : file.tensors()) {
    seen = sum_of(entry.data, entry.bytes);
    try {
      seen = sum_of(file.read(entry.name).raw(), 0);
    } catch (const FileError&) {  // a type or rank that qkv does not read
    }
  }
}

void read_index(std::string_view bytes) {
  const TensorFiles files = TensorFiles::open_index(folder().write("model.safetensors.index.json", bytes));
  for (const std::string_view name : files.names()) seen = static_cast<unsigned>(files.find(name).rank());
  seen = static_cast<unsigned>(files.stored().size());
}

void read_config(std::string_view bytes) {
  const ModelConfig config = load_config(folder().write("config.json", bytes));
  if (config.positions == Positions::rotary && config.head_dim < 1000) rotary_frequencies(config);
}

void read_tokenizer(std::string_view bytes) {
  const Tokenizer tokenizer = Tokenizer::load(folder().write("tokenizer.json", bytes));
  constexpr std::string_view kText = "the cat's 12 \xE2\x80\x83 <|endoftext|> \xFF bc\n";
  for (const SpecialTokens special : {SpecialTokens::as_text, SpecialTokens::as_ids}) {
    try {
      tokenizer.decode(tokenizer.with_template(tokenizer.encode(kText, special)));
    } catch (const std::invalid_argument&) {  // a pattern that backtracks without end
    }
  }
  tokenizer.save(folder().path("saved.json"));
  Tokenizer::load(folder().path("saved.json"));
}

void read_npy(std::string_view bytes) {
  const Tensor array = load_npy(folder().write("a.npy", bytes));
  seen = sum_of(array.raw(), array.bytes());
}

void read_andrea(std::string_view bytes) {
  const AndreaCheckpoint c = load_andrea(folder().write("c.bin", bytes));
  seen = sum_of(c.model.parameters()[0].raw(), c.model.parameters()[0].bytes());
}

// One file more than the others: segments, a zero byte, andrea.json.
void read_harris(std::string_view bytes) {
  const std::size_t zero = std::min(bytes.find('\0'), bytes.size());
  load_harris_segments(folder().write("h.json", bytes.substr(0, zero))).encode("the thing");
  if (zero < bytes.size()) read_andrea_json(folder().write("other.json", bytes.substr(zero + 1)));
}

ModelConfig adapted_model() {
  ModelConfig config;
  config.n_layer = config.n_head = 1;
  config.d_model = config.d_ff = config.ctx_len = 2;
  return config;
}

// adapter_config.json, a zero byte, adapter_model.safetensors.
void read_adapter(std::string_view bytes) {
  const std::size_t zero = std::min(bytes.find('\0'), bytes.size());
  std::filesystem::create_directories(folder().path("lora"));
  folder().write("lora/adapter_config.json", bytes.substr(0, zero));
  folder().write("lora/adapter_model.safetensors", bytes.substr(std::min(zero + 1, bytes.size())));
  const LoraAdapters adapters = load_lora(folder().path("lora"), adapted_model());
  for (const Tensor& value : adapters.values) seen = sum_of(value.raw(), value.bytes());
}

const std::map<std::string_view, void (*)(std::string_view)>& readers() {
  static const std::map<std::string_view, void (*)(std::string_view)> all = {
      {"safetensors", read_safetensors}, {"index", read_index},    {"config", read_config},
      {"tokenizer", read_tokenizer},     {"npy", read_npy},        {"andrea", read_andrea},
      {"harris", read_harris},           {"adapter", read_adapter}};
  return all;
}

ModelConfig preset_of_a_few() {
  ModelConfig config;
  config.n_layer = config.n_head = 1;
  config.d_model = config.d_ff = config.ctx_len = 2;
  config.vocab_size = 257;
  config.positions = Positions::rotary;
  config.rope_scaling = {8, 1, 4, 32, {2}};
  return config;
}

std::string golden(const std::string& name) { return read_all(kGolden + name); }

std::string small_tokenizer(TokenizerData data) {
  Tokenizer::from_data(std::move(data)).save(folder().path("seed.json"));
  return read_all(folder().path("seed.json"));
}

std::vector<std::string> tokenizer_seeds() {
  TokenizerData data = Tokenizer::train_bpe("ab abc abcd the the cat", 262, {}).data();
  std::vector<std::string> seeds{small_tokenizer(data)};
  data.patterns.insert(data.patterns.begin(), R"(\p{N}{1,3}|[^\s\w]+|\x{41}\u0042|\p{Han}(?=a)|^a$|(?i:'s))");
  data.normalisers = {Normaliser::nfc, Normaliser::nfkd};
  data.before = {256};
  const auto cat = static_cast<std::int32_t>(data.tokens.size());
  data.tokens.emplace_back("cat");
  data.after = {256, cat};
  data.ignore_merges = true;
  data.added.push_back(
      {.id = cat, .content = "cat", .single_word = true, .lstrip = true, .rstrip = true, .normalized = true});
  seeds.push_back(small_tokenizer(data));
  TokenizerData scored;
  for (int byte = 0; byte < 256; ++byte) {
    scored.tokens.emplace_back(1, static_cast<char>(byte));
    scored.byte_ids.push_back(byte);
  }
  scored.scores.assign(256, -1);
  scored.add_prefix_space = true;
  seeds.push_back(small_tokenizer(scored));
  seeds.push_back(small_tokenizer(Tokenizer::train_harris("the thing the things thing", 260).data()));
  seeds.push_back(golden("hf_gpt2/tokenizer.json"));
  return seeds;
}

}  // namespace

std::vector<std::string> reader_names() {
  std::vector<std::string> names;
  for (const auto& [name, ignored] : readers()) names.emplace_back(name);
  return names;
}

bool read_bytes(std::string_view reader, std::string_view bytes) {
  const auto read = readers().at(reader);
  try {
    read(bytes);
    return true;
  } catch (const FileError&) {
    return false;
  }
}

std::vector<std::string> reader_seeds(std::string_view reader) {
  if (reader == "safetensors") return {folder().safetensors("a"), std::string("\x02\0\0\0\0\0\0\0{}", 10)};
  if (reader == "index")
    return {R"({"weight_map":{"a":"one.safetensors","ax":"one.safetensors","ay":"one.safetensors",
    "b":"two.safetensors","bx":"two.safetensors","by":"two.safetensors"}})"};
  if (reader == "config") {
    save_model(folder().path("m"), Model(preset_of_a_few()), Tokenizer::bytes());
    std::vector<std::string> seeds{read_all(folder().path("m/config.json"))};
    for (const char* name : {"hf_gpt2", "hf_llama", "hf_llama3", "hf_llama_linear"})
      seeds.push_back(golden(std::string(name) + "/config.json"));
    return seeds;
  }
  if (reader == "tokenizer") return tokenizer_seeds();
  if (reader == "npy") {
    std::vector<std::string> seeds;
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64, DType::boolean}) {
      save_npy(folder().path("seed.npy"), Tensor({2, 3}, dtype));
      seeds.push_back(read_all(folder().path("seed.npy")));
    }
    std::string fortran = seeds[0];
    fortran.replace(fortran.find("False"), 5, "True ");
    seeds.push_back(fortran);
    return seeds;
  }
  if (reader == "adapter") {
    std::vector<std::string> seeds;
    for (const std::vector<std::string>& targets :
         {std::vector<std::string>{"wq", "w_down"}, {"wq", "wk", "wv", "wo"}}) {
      save_lora(folder().path("lora"), adapted_model(), make_lora(adapted_model(), {.rank = 1, .targets = targets}));
      seeds.push_back(read_all(folder().path("lora/adapter_config.json")) + '\0' +
                      read_all(folder().path("lora/adapter_model.safetensors")));
    }
    return seeds;
  }
  if (reader == "andrea") return {read_all(folder().path("c.bin"))};
  return {R"(["the", "ing", "a"])", R"({"version": 1, "segments": ["th"]})",
          R"(["th"])" + std::string(1, '\0') + read_all(folder().path("andrea.json"))};
}

}  // namespace qkv::test
