// SPDX-License-Identifier: Apache-2.0
#include "fuzz/format_seeds.h"

#include <optional>

#include "formats/character_vocabulary.h"
#include "formats/safetensors.h"
#include "fuzz/gguf_case.h"
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

// LLaMA architecture.
ModelConfig small_llama() {
  ModelConfig config = smallest();
  config.vocab_size = 3;
  config.positions = Positions::rotary;
  config.activation = Activation::silu;
  config.gated = true;
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
  config.qkv_bias = config.output_bias = config.mlp_bias = config.tied_head = true;
  return config;
}

std::string files_of(const std::string& name) {
  const std::string generation = name + "/generation_config.json";
  std::string bytes = folder().read(name + "/config.json") + '\0';
  bytes += name == "own" ? "{}" : folder().read(generation);
  bytes += '\0';
  bytes += name == "own" ? R"({"bos_token": {"content": "a"}, "unk_token": "none", "pad_token": null})"
                         : folder().read(name + "/tokenizer_config.json");
  return bytes + '\0' + folder().read(name + "/model.safetensors");
}

std::string small_tokenizer(TokenizerData data) { return Tokenizer::from_data(std::move(data)).json(); }

}  // namespace

std::vector<std::string> safetensors_seeds() {
  // Types and ranks that are listed but cannot be read.
  std::string listed = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("b":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[1,5]}})";
  std::string size(8, '\0');
  size[0] = static_cast<char>(listed.size());
  return {safetensors("a"), std::string("\x02\0\0\0\0\0\0\0{}", 10), size + listed + "12345"};
}

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
  std::string relu = seeds[1];
  const std::size_t at = relu.find("gelu_new");
  relu = relu.substr(0, at).append("relu").append(relu.substr(at + 8));
  seeds.push_back(relu);
  return seeds;
}

std::vector<std::string> directory_seeds() {
  const Tokenizer tokenizer = Tokenizer::from_json("tiny", kTinyTokenizer);
  std::vector<std::string> seeds;
  ModelConfig own = smallest();
  own.vocab_size = 3;
  save_model(folder().path("own"), Model(own), tokenizer);
  seeds.push_back(files_of("own"));
  save_hugging_face(folder().path("l"), Model(small_llama()), tokenizer,
                    {.facts = {.end_tokens = {1, 2}, .named = {0, 1, 2}}});
  seeds.push_back(files_of("l"));
  // A tied head that is stored nevertheless, and tensors of old versions.
  const Tensor head({3, 2}), frequencies({1});
  ModelConfig tied = small_llama();
  tied.tied_head = true;
  save_hugging_face(folder().path("lo"), Model(tied), tokenizer);
  SafetensorsFile stored(folder().path("lo/model.safetensors"));
  std::vector<NamedView> more{{"lm_head.weight", head.view()},
                              {"model.layers.0.self_attn.rotary_emb.inv_freq", frequencies.view()}};
  std::vector<Tensor> kept;
  for (const auto& entry : stored.tensors()) kept.push_back(stored.read(entry.name));
  for (std::size_t i = 0; i < kept.size(); ++i) more.push_back({stored.tensors()[i].name, kept[i].view()});
  write_safetensors(folder().path("lo/model.safetensors"), std::move(more), {});
  seeds.push_back(files_of("lo"));
  save_hugging_face(folder().path("lt"), Model(tied), tokenizer, {.type = DType::bf16});
  seeds.push_back(files_of("lt"));
  save_hugging_face(folder().path("g"), Model(small_gpt2()), tokenizer,
                    {.type = DType::f16, .facts = {.end_tokens = {1}}});
  seeds.push_back(files_of("g"));
  return seeds;
}

TokenizerData of_characters(bool split) {
  TokenizerData data = character_vocabulary();
  for (const char* token : {" ", "a", "b", "ab", " a"}) data.tokens.emplace_back(token);
  data.merges = {{260, 261, 262}, {259, 260, 263}};
  data.split_spaces = split;
  data.space_prefix = split ? SpacePrefix::first_unless_there : SpacePrefix::each_part;
  return data;
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
  for (const bool split : {false, true}) seeds.push_back(small_tokenizer(of_characters(split)));
  const std::string& first = seeds.back();
  const std::size_t decoder = first.find("\"decoder\""), model = first.find("\"model\"");
  seeds.push_back(first.substr(0, decoder) +
                  R"("decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace",
    "replacement": "\u2581", "prepend_scheme": "first", "split": true}]}, )" +
                  first.substr(model));
  seeds.emplace_back(
      R"({"normalizer": {"type": "NFC"}, "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
      {"type": "Split", "pattern": {"String": "a-b"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "a", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"a": {"id": "a", "ids": [0], "tokens": ["a"]}}}]},
    "model": {"type": "BPE", "unk_token": "a", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");
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
  const std::string file = folder().read("c.bin"), layout = folder().read("andrea.json");
  std::string spaced = layout;
  for (std::size_t at = 0; (at = spaced.find(",wq", at)) != std::string::npos; ++at) spaced.insert(at + 1, 1, ' ');
  return {layout + '\0' + file, spaced + '\0' + file};
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
                              "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>", "[INST]", "[/INST]"}) {
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
          "j{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token + ' ' }}",
          "j{{ \" [INST] \" + message[\"content\"] + \" [/INST]\" }}{{ eos_token }}",
          "j{{ \"[INST] \" + message[\"content\"] + \"[/INST]\" }}{{ eos_token }}",
          "j{{ \"[INST]\" + message[\"content\"] + \"[/INST]\" }}{{ eos_token }}",
          "j{{ '<|user|>\n' + message['content'] + eos_token }}{{ '<|assistant|>' }}",
          R"(c{"bos_token": "<s>", "chat_template": "{{'<|im_start|>system\\nIt\\'s <|im_end|>'}}"})",
          R"(c{"chat_template": [{"name": "tool", "template": "x"}, {"name": "default", "template": "[INST]"}]})",
          R"(c{"eos_token": "</s>"})",
          std::string("g").append(gguf_seeds()[5].bytes)};
}

}  // namespace qkv::test
