// SPDX-License-Identifier: Apache-2.0
#include "fuzz/gguf_case.h"

#include <algorithm>
#include <stdexcept>

#include "formats/gguf.h"
#include "formats/gguf_bytes.h"
#include "formats/gguf_config.h"
#include "formats/gguf_source.h"
#include "qkv/error.h"

namespace qkv::test {
namespace {

// Calls f; returns whether it was accepted.
template <class F>
bool accepted(const F& f) {
  try {
    f();
    return true;
  } catch (const FileError&) {
    return false;
  }
}

void read_keys(const Gguf& file) {
  for (const GgufKey& key : file.keys()) {
    accepted([&] { file.integer(key.name, -100, 100); });
    accepted([&] { file.number(key.name); });
    accepted([&] { file.boolean(key.name); });
    accepted([&] { file.string(key.name); });
    accepted([&] { file.strings(key.name); });
    accepted([&] { file.integers(key.name); });
    accepted([&] { file.floats(key.name); });
  }
}

void read_tensors(const Gguf& file) {
  for (const GgufTensor& tensor : file.tensors()) {
    std::vector<float> row(static_cast<std::size_t>(tensor.row()));
    for (std::int64_t r = 0; r < tensor.rows(); ++r)
      if (!accepted([&] { file.read_rows(tensor, r, 1, row.data()); })) break;
  }
}

// Reads the tensors kept in blocks, as loading a model for inference does.
void read_stored(const ModelSource& source) {
  for (std::size_t i = 0; i < source.infos().size(); ++i) {
    const DType type = source.stored_type(i);
    if (!is_blocks(type)) continue;
    const Dims& shape = source.infos()[i].shape;  // [in, out] or [vocab_size, d_model]
    const bool embedding = source.infos()[i].name == "token_embedding";
    std::vector<std::byte> block(static_cast<std::size_t>(shape[embedding ? 1 : 0]) * 2);  // larger than needed
    for (const std::int64_t column : {std::int64_t{0}, shape[embedding ? 0 : 1] - 1})
      source.read_blocks(i, column, 1, block.data());
  }
}

void use_tokenizer(const Tokenizer& tokenizer) {
  const std::string text = "a b\xE2\x96\x81\xFF ab12<s>\n\xC3\xA9";
  for (const std::int32_t id : tokenizer.encode(text, SpecialTokens::as_ids))
    if (id < 0 || id >= tokenizer.size()) throw std::logic_error("an id outside the vocabulary");
  tokenizer.decode(tokenizer.encode(text));
}

// Keys of a model with d_model 8, 2 heads, 1 layer and a context of 4; the caller adds the architecture's own keys.
GgufBytes model_keys(const std::string& architecture) {
  GgufBytes b;
  b.string("general.architecture", architecture);
  b.u32(architecture + ".block_count", 1).u32(architecture + ".context_length", 4);
  b.u32(architecture + ".embedding_length", 8).u32(architecture + ".feed_forward_length", 4);
  b.u32(architecture + ".attention.head_count", 2);
  return b;
}

// A llama with d_model 32 whose matrices have one block type.
std::string blocks_file(std::uint32_t id) {
  const GgufTensorType& type = *gguf_tensor_type(id);
  GgufBytes b;
  b.string("general.architecture", "llama").u32("llama.block_count", 1).u32("llama.context_length", 4);
  b.u32("llama.embedding_length", 32).u32("llama.feed_forward_length", 32).u32("llama.attention.head_count", 1);
  b.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  b.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "gpt-2");
  b.strings("tokenizer.ggml.tokens", {"a"}).strings("tokenizer.ggml.merges", {});
  b.string("tokenizer.chat_template", "{{ '<|im_start|>' }}");
  const auto matrix = [&](const std::string& name, std::uint64_t rows) {
    b.tensor(name, {32, rows}, id,
             std::string(static_cast<std::size_t>(type.bytes) * rows * 32 / static_cast<std::size_t>(type.elements),
                         '\x11'));
  };
  matrix("token_embd.weight", 1);
  b.tensor("output_norm.weight", {32}, 1, std::string(64, '\x11'));
  for (const char* name : {"attn_norm", "ffn_norm"})
    b.tensor(std::string("blk.0.") + name + ".weight", {32}, 1, std::string(64, '\x11'));
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    matrix(std::string("blk.0.") + name + ".weight", 32);
  return b.bytes();
}

void tensor(GgufBytes& b, const std::string& name, std::uint64_t row, std::uint64_t rows = 0) {
  std::vector<std::uint64_t> dims{row};
  if (rows) dims.push_back(rows);
  b.tensor(name, dims, 1, std::string(2 * row * std::max<std::uint64_t>(rows, 1), '\x11'));
}

std::string llama_file(bool everything, const std::vector<float>& scores = {0, 0, 0, 0, -1, -2}) {
  GgufBytes b = model_keys("llama");
  b.alignment = everything ? 8 : 32;
  if (everything) b.u32("general.alignment", 8);
  b.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  if (everything) {
    b.u32("llama.attention.head_count_kv", 1).u32("llama.attention.key_length", 4);
    b.u32("llama.attention.value_length", 4).u32("llama.rope.dimension_count", 4).u32("llama.vocab_size", 6);
    b.f32("llama.rope.freq_base", 500).string("llama.rope.scaling.type", "linear");
    b.f32("llama.rope.scaling.factor", 2).u32("llama.expert_count", 0);
    b.boolean("tokenizer.ggml.add_bos_token", true).boolean("tokenizer.ggml.add_space_prefix", false);
    b.boolean("tokenizer.ggml.add_eos_token", false).u32("tokenizer.ggml.unknown_token_id", 0);
    b.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 2);
    b.u32("tokenizer.ggml.eot_token_id", 1);
  }
  b.string("tokenizer.ggml.model", "llama");
  b.strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0xFF>", "a",
                                      "\xE2\x96\x81"
                                      "a"});
  b.array<float>("tokenizer.ggml.scores", 6, scores);
  b.array<std::int32_t>("tokenizer.ggml.token_type", 5, {2, 3, 4, 6, 1, 1});
  const std::uint64_t kv = everything ? 4 : 8;
  if (everything) tensor(b, "rope_freqs.weight", 2);
  tensor(b, "token_embd.weight", 8, 6);
  tensor(b, "output_norm.weight", 8);
  if (everything) tensor(b, "output.weight", 8, 6);
  for (const char* name : {"attn_norm", "ffn_norm"}) tensor(b, std::string("blk.0.") + name + ".weight", 8);
  tensor(b, "blk.0.attn_q.weight", 8, 8);
  if (everything) tensor(b, "blk.0.attn_q.bias", 8);
  tensor(b, "blk.0.attn_k.weight", 8, kv);
  tensor(b, "blk.0.attn_v.weight", 8, kv);
  tensor(b, "blk.0.attn_output.weight", 8, 8);
  for (const char* name : {"ffn_gate", "ffn_up"}) tensor(b, std::string("blk.0.") + name + ".weight", 8, 4);
  tensor(b, "blk.0.ffn_down.weight", 4, 8);
  return b.bytes();
}

std::string gpt2_file(const std::string& split, bool joined, const std::vector<std::string>& merges = {"a b"},
                      const std::vector<std::int32_t>& types = {1, 1, 1, 3, 4, 5}) {
  GgufBytes b = model_keys("gpt2");
  b.f32("gpt2.attention.layer_norm_epsilon", 1e-5f);
  b.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", split);
  b.strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|endoftext|>", "<user>", "\xC4\xA0"});
  b.array<std::int32_t>("tokenizer.ggml.token_type", 5, types);
  b.strings("tokenizer.ggml.merges", merges).u32("tokenizer.ggml.bos_token_id", 3);
  b.u32("tokenizer.ggml.eos_token_id", 3);
  tensor(b, "token_embd.weight", 8, 6);
  tensor(b, "position_embd.weight", 8, 4);
  const auto both = [&](const std::string& name, std::uint64_t row, std::uint64_t rows) {
    if (rows) tensor(b, name + ".weight", row, rows);
    if (!rows) tensor(b, name + ".weight", row);
    tensor(b, name + ".bias", rows ? rows : row);
  };
  both("output_norm", 8, 0);
  both("blk.0.attn_norm", 8, 0);
  if (joined) both("blk.0.attn_qkv", 8, 24);
  for (const char* name : {"q", "k", "v"})
    if (!joined) both(std::string("blk.0.attn_") + name, 8, 8);
  both("blk.0.attn_output", 8, 8);
  both("blk.0.ffn_norm", 8, 0);
  both("blk.0.ffn_up", 8, 4);
  both("blk.0.ffn_down", 4, 8);
  return b.bytes();
}

// The file with the bytes at `distance` after the first `name` replaced.
std::string changed(std::string file, const std::string& name, std::size_t distance, const std::string& to) {
  return file.replace(file.find(name) + name.size() + distance, to.size(), to);
}

// Heads with more parameters than can be counted.
std::string uncountable_file() {
  constexpr std::uint32_t kMax = 0x7FFFFFFE;
  GgufBytes b;
  b.string("general.architecture", "llama").u32("llama.block_count", 1).u32("llama.context_length", 4);
  b.u32("llama.embedding_length", kMax).u32("llama.feed_forward_length", 4).u32("llama.attention.head_count", kMax);
  b.u32("llama.attention.key_length", kMax).f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  b.strings("tokenizer.ggml.tokens", {"a"});
  tensor(b, "token_embd.weight", 8, 1);
  return b.bytes();
}

std::string keys_file() {
  GgufBytes b;
  b.version = 2;
  b.key("u8", 0, "\1").key("i8", 1, "\1").key("u16", 2, "\1\1").key("i16", 3, "\1\1").u32("u32", 1);
  b.key("i32", 5, "\1\1\1\1")
      .f32("f32", 1)
      .boolean("bool", true)
      .string("string", "text")
      .strings("strings", {"", "a"});
  b.key("u64", 10, "\1\1\1\1\1\1\1\1").key("i64", 11, "\1\1\1\1\1\1\1\1").key("f64", 12, "\1\1\1\1\1\1\1\1");
  b.array<std::uint8_t>("bools", 7, {0, 1}).array<std::int64_t>("i64s", 11, {1, 2}).array<float>("f32s", 6, {1, 2});
  b.array<std::uint64_t>("u64s", 10, {~std::uint64_t{0}})
      .array<std::int8_t>("i8s", 1, {1})
      .array<double>("f64s", 12, {1});
  return b.bytes();
}

std::string types_file() {
  GgufBytes b;
  for (std::uint32_t id = 0; id < 45; ++id) {
    const GgufTensorType* type = gguf_tensor_type(id);
    if (type)
      b.tensor(type->name, {static_cast<std::uint64_t>(type->elements), 1, 1}, id,
               std::string(static_cast<std::size_t>(type->bytes), '\x21'));
  }
  return b.bytes();
}

}  // namespace

int read_everything(std::span<const std::byte> file) {
  int reached = 0;
  accepted([&] {
    const Gguf contents("f.gguf", file);
    reached = 1;
    read_keys(contents);
    read_tensors(contents);
    gguf_holds_model(contents);
    const auto source = open_gguf("f.gguf", file);
    for (std::size_t i = 0; i < source->infos().size(); ++i)
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
        Tensor values(source->infos()[i].shape, dtype);
        source->read(i, values.view());
      }
    read_stored(*source);
    source->dtype();
    source->end_tokens();
    source->chat_template();
    reached = 2;
    const Tokenizer tokenizer = source->tokenizer();
    source->named_tokens(tokenizer);
    use_tokenizer(tokenizer);
    reached = 3;
  });
  return reached;
}

std::vector<GgufSeed> gguf_seeds() {
  constexpr int kContainer = 1, kModel = 2, kAll = 3;
  const std::string i16("\x19\0\0\0", 4);  // a type that no parameter can have
  return {{"llama", llama_file(false), kAll},
          {"llama_everything", llama_file(true), kAll},
          {"gpt2", gpt2_file("gpt-2", true), kAll},
          {"gpt2_smollm", gpt2_file("smollm", false), kAll},
          {"gpt2_llama_bpe", gpt2_file("llama-bpe", true), kAll},
          {"llama_q8_0", blocks_file(8), kAll},
          {"llama_q4_0", blocks_file(2), kAll},
          {"llama_q4_1", blocks_file(3), kAll},
          {"llama_bf16", blocks_file(30), kAll},
          {"keys", keys_file(), kContainer},
          {"types", types_file(), kContainer},
          {"norm_of_i16", changed(llama_file(false), "output_norm.weight", 4 + 8, i16), kContainer},
          {"uncountable", uncountable_file(), kContainer},
          {"merged_twice", gpt2_file("gpt-2", true, {"a b", "a b"}), kModel},
          {"types_of_some", gpt2_file("gpt-2", true, {"a b"}, {1, 1}), kModel},
          {"scores_of_some", llama_file(false, {0, 0}), kModel},
          {"adds_an_end", changed(llama_file(true), "tokenizer.ggml.add_eos_token", 4, "\1"), kModel}};
}

}  // namespace qkv::test
