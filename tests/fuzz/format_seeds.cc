// SPDX-License-Identifier: Apache-2.0
#include "fuzz/format_seeds.h"

#include <optional>

#include "formats/safetensors.h"
#include "fuzz/reader_folder.h"
#include "qkv/andrea.h"
#include "qkv/array_file.h"
#include "qkv/lora.h"
#include "qkv/model_file.h"
#include "text/tokenizer_data.h"

namespace qkv::test {
namespace {

std::string golden(const std::string& name) { return read_all(QKV_SOURCE_DIR "/tests/formats/golden/" + name); }

std::string safetensors(const std::string& name) {
  const Tensor a({2, 3}), b({2}, DType::boolean), c(Dims{}, DType::f16);
  write_safetensors(folder().path("seed"), {{name, a}, {name + "x", b}, {name + "y", c}}, {{"k", "v"}});
  return folder().read("seed");
}

ModelConfig smallest() {
  ModelConfig config;
  config.n_layer = config.n_head = 1;
  config.d_model = config.d_ff = config.ctx_len = 2;
  return config;
}

// Of llama's shape.
ModelConfig small_llama() {
  ModelConfig config = smallest();
  config.vocab_size = 3;
  config.positions = Positions::rotary;
  config.activation = Activation::swiglu;
  config.norm = Norm::rmsnorm;
  config.norm_gain = true;
  config.final_norm = true;
  config.embedding_norm = false;
  return config;
}

ModelConfig small_gpt2() {
  ModelConfig config = smallest();
  config.vocab_size = 3;
  config.activation = Activation::gelu;
  config.norm = Norm::layernorm;
  config.norm_gain = config.norm_bias = config.final_norm = true;
  config.embedding_norm = false;
  config.attention_bias = config.mlp_bias = config.tied_head = true;
  return config;
}

std::string files_of(const std::string& name) {
  const std::string generation = name + "/generation_config.json";
  std::string bytes = folder().read(name + "/config.json") + '\0';
  bytes += name == "own" ? "{}" : folder().read(generation);
  return bytes + '\0' + folder().read(name + "/model.safetensors");
}

std::string small_tokenizer(TokenizerData data) { return Tokenizer::from_data(std::move(data)).json(); }

}  // namespace

std::vector<std::string> safetensors_seeds() { return {safetensors("a"), std::string("\x02\0\0\0\0\0\0\0{}", 10)}; }

bool write_shards() {
  folder().write("one.safetensors", safetensors("a"));
  folder().write("two.safetensors", safetensors("b"));
  return true;
}

std::vector<std::string> index_seeds() {
  return {R"({"weight_map":{"a":"one.safetensors","ax":"one.safetensors","ay":"one.safetensors",
    "b":"two.safetensors","bx":"two.safetensors","by":"two.safetensors"}})"};
}

std::vector<std::string> config_seeds() {
  ModelConfig own = smallest();
  own.vocab_size = 257;
  own.positions = Positions::rotary;
  own.rope_scaling = {8, 1, 4, 32, {2}};
  own.head_dim = 2;
  save_model(folder().path("m"), Model(own), Tokenizer::bytes());
  std::vector<std::string> seeds{folder().read("m/config.json")};
  for (const char* name : {"hf_gpt2", "hf_llama", "hf_llama3", "hf_llama_linear"})
    seeds.push_back(golden(std::string(name) + "/config.json"));
  return seeds;
}

std::vector<std::string> directory_seeds() {
  const Tokenizer tokenizer = Tokenizer::from_json("tiny", kTinyTokenizer);
  std::vector<std::string> seeds;
  ModelConfig own = smallest();
  own.vocab_size = 3;
  save_model(folder().path("own"), Model(own), tokenizer);
  seeds.push_back(files_of("own"));
  save_hugging_face(folder().path("l"), Model(small_llama()), tokenizer, {.facts = {.end_tokens = {1, 2}}});
  seeds.push_back(files_of("l"));
  ModelConfig tied = small_llama();
  tied.tied_head = true;
  save_hugging_face(folder().path("lt"), Model(tied), tokenizer, {.type = DType::bf16});
  seeds.push_back(files_of("lt"));
  save_hugging_face(folder().path("g"), Model(small_gpt2()), tokenizer,
                    {.type = DType::f16, .facts = {.end_tokens = {1}}});
  seeds.push_back(files_of("g"));
  return seeds;
}

std::vector<std::string> tokenizer_seeds() {
  TokenizerData data = Tokenizer::train_bpe("ab abc abcd the the cat", 262, {}).data();
  std::vector<std::string> seeds{small_tokenizer(data), kTinyTokenizer};
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
  return seeds;
}

std::vector<std::string> npy_seeds() {
  std::vector<std::string> seeds;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64, DType::boolean}) {
    save_npy(folder().path("seed.npy"), Tensor({2, 3}, dtype));
    seeds.push_back(folder().read("seed.npy"));
  }
  std::string fortran = seeds[0];
  fortran.replace(fortran.find("False"), 5, "True ");
  seeds.push_back(fortran);
  return seeds;
}

bool write_andrea() {
  ModelConfig config = smallest();
  config.vocab_size = 259;
  const Model model(config);
  folder().write("harris_segments.json", R"(["the", "ing"])");
  save_andrea(folder().path("c.bin"), model, load_harris_segments(folder().path("harris_segments.json")), {}, 3, {},
              {});
  return true;
}

std::vector<std::string> andrea_seeds() {
  write_andrea();
  return {folder().read("c.bin")};
}

std::vector<std::string> harris_seeds() {
  write_andrea();
  return {R"(["the", "ing", "a"])", R"({"version": 1, "segments": ["th"]})",
          R"(["th"])" + std::string(1, '\0') + folder().read("andrea.json")};
}

ModelConfig adapted_model() { return smallest(); }

std::vector<std::string> adapter_seeds() {
  std::vector<std::string> seeds;
  for (const std::vector<std::string>& targets : {std::vector<std::string>{"wq", "w_down"}, {"wq", "wk", "wv", "wo"}}) {
    save_lora(folder().path("lora"), adapted_model(), make_lora(adapted_model(), {.rank = 1, .targets = targets}));
    seeds.push_back(folder().read("lora/adapter_config.json") + '\0' + folder().read("lora/adapter_model.safetensors"));
  }
  return seeds;
}

Tokenizer talking_tokenizer() {
  TokenizerData data = Tokenizer::bytes().data();
  for (const char* content : {"<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
                              "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>"}) {
    AddedToken token;
    token.id = static_cast<std::int32_t>(data.tokens.size());
    token.content = content;
    token.special = content[1] == '|';  // both kinds
    data.added.push_back(token);
    data.tokens.emplace_back(content);
  }
  return Tokenizer::from_data(data);
}

std::vector<std::string> chat_seeds() {
  return {"j{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{{'<|im_start|>' + message['role']}}",
          "j{{'<|start_header_id|>' + message['role']}}<|eot_id|>",
          "j{{ bos_token + '[INST] <<SYS>>\\n' }}</s>",
          "j{{ '<|user|>\n' + message['content'] + eos_token }}{{ '<|assistant|>' }}",
          R"(c{"bos_token": "<s>", "chat_template": "{{'<|im_start|>system\\nIt\\'s <|im_end|>'}}"})",
          R"(c{"chat_template": [{"name": "tool", "template": "x"}, {"name": "default", "template": "[INST]"}]})",
          R"(c{"eos_token": "</s>"})"};
}

}  // namespace qkv::test
