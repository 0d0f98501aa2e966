// SPDX-License-Identifier: Apache-2.0
// End tokens and chat templates, which a model's files store in addition to the tokenizer, survive every format that
// can store them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "formats/gguf.h"
#include "qkv/chat_file.h"
#include "qkv/error.h"
#include "qkv/model_file.h"
#include "scratch.h"
#include "text/tokenizer_data.h"

namespace qkv {
namespace {

using nlohmann::json;
using testing::ElementsAre;

// Quotes, line breaks and non-ASCII characters, as real templates have.
const std::string kTemplate =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message[\"content\"]}}{{ eos_token }}"
    "{%- endfor %}\t\\n \xC3\xA9\xE2\x80\x94\n";

Model small_llama() {
  ModelConfig c;
  c.n_layer = 1;
  c.n_head = 2;
  c.d_model = 32;
  c.d_ff = 32;
  c.ctx_len = 8;
  c.vocab_size = 270;
  c.norm_gain = c.final_norm = c.tied_head = true;
  c.embedding_norm = false;
  c.activation = Activation::silu;
  c.gated = true;
  c.positions = Positions::rotary;
  return Model(c, 3);
}

// Bytes, the end token 256, and <|im_start|> 257, <|im_end|> 258, a user's token 259.
Tokenizer tokenizer() {
  TokenizerData data = Tokenizer::bytes().data();
  for (const char* content : {"<|im_start|>", "<|im_end|>", "word"}) {
    AddedToken token;
    token.id = static_cast<std::int32_t>(data.tokens.size());
    token.content = content;
    token.special = content[0] == '<';
    data.added.push_back(token);
    data.tokens.emplace_back(content);
  }
  return Tokenizer::from_data(data);
}

void save(const std::string& path, const std::string& format, const LoadedModel& m) {
  if (format == "qkv") save_model(path, m.model, m.tokenizer, m.text_facts());
  if (format == "gguf") save_gguf(path, m.model, m.tokenizer, "f32", m.text_facts());
  if (format == "hf") save_hugging_face(path, m.model, m.tokenizer, {.facts = m.text_facts()});
}

// From each format to every other.
TEST(TextFacts, SurviveEveryFormat) {
  const Scratch scratch;
  for (const std::string from : {"qkv", "gguf", "hf"})
    for (const std::string to : {"qkv", "gguf", "hf"}) {
      SCOPED_TRACE(from + " to " + to);
      const NamedTokens named{.begin = 257, .unknown = 256, .padding = 259};
      save(scratch.path(from + "1"), from, {small_llama(), tokenizer(), {258, 256, 257}, kTemplate, named});
      save(scratch.path(to + "2"), to, load_model(scratch.path(from + "1")));
      const LoadedModel again = load_model(scratch.path(to + "2"));
      EXPECT_THAT(again.end_tokens, ElementsAre(258, 256, 257));
      EXPECT_EQ(again.chat_template, kTemplate);
      EXPECT_EQ(load_chat_template(scratch.path(to + "2")), kTemplate);
      EXPECT_EQ(load_model_for_inference(scratch.path(to + "2")).chat_template, kTemplate);
      const ModelFacts facts = inspect_model(scratch.path(to + "2"));
      EXPECT_EQ(facts.end_tokens, again.end_tokens);
      EXPECT_EQ(facts.chat_template, kTemplate);
      EXPECT_EQ(again.named, named);
      EXPECT_EQ(facts.named, named);
      EXPECT_EQ(load_model_for_inference(scratch.path(to + "2")).named, named);
      EXPECT_EQ(again.tokenizer.begin_token(), -1);  // the name by itself prepends nothing to a text
    }
}

TEST(TextFacts, OldFactsAreReplaced) {
  const Scratch scratch;
  for (const std::string format : {"qkv", "gguf", "hf"}) {
    SCOPED_TRACE(format);
    const std::string path = scratch.path(format);
    save(path, format, {small_llama(), tokenizer(), {258, 256}, kTemplate, {1, 2, 3}});
    if (format == "hf") scratch.file("hf/chat_template.jinja", "{{ 'another' }}");
    save(path, format, {small_llama(), tokenizer(), {}, ""});
    const LoadedModel again = load_model(path);
    EXPECT_THAT(again.end_tokens, ElementsAre(256));
    EXPECT_EQ(again.chat_template, "");
    EXPECT_EQ(again.named, NamedTokens());
  }
  // Saving in qkv's format over a Hugging Face directory with a separate template file.
  save(scratch.path("over"), "hf", {small_llama(), tokenizer(), {258}, kTemplate});
  save(scratch.path("over"), "qkv", {small_llama(), tokenizer(), {}, ""});
  EXPECT_EQ(load_model(scratch.path("over")).chat_template, "");
  // Facts that the tokenizer already contains need no file.
  TokenizerData data = tokenizer().data();
  data.begin_token = 257;
  save(scratch.path("qkv"), "qkv", {small_llama(), Tokenizer::from_data(data), {256}, "", {.begin = 257}});
  EXPECT_FALSE(std::filesystem::exists(scratch.path("qkv/generation_config.json")));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("qkv/chat_template.jinja")));
}

// The locations where other programs look.
TEST(TextFacts, AreStoredWhereOtherProgramsReadThem) {
  const Scratch scratch;
  const LoadedModel model{small_llama(), tokenizer(), {258, 256, 257, 259}, kTemplate, {257, 65, 259}};
  save(scratch.path("hf"), "hf", model);
  const json config = json::parse(read_all(scratch.path("hf/tokenizer_config.json")));
  EXPECT_EQ(config["chat_template"], kTemplate);
  EXPECT_EQ(config["eos_token"], "<|im_end|>");
  EXPECT_EQ(config["bos_token"], "<|im_start|>");
  EXPECT_EQ(config["pad_token"], "word");
  EXPECT_FALSE(config.contains("unk_token"));  // "A" would become a control token
  for (const char* name : {"hf/generation_config.json", "hf/config.json"})
    for (const auto& [key, id] :
         {std::pair("eos_token_id", json({258, 256, 257, 259})), {"bos_token_id", 257}, {"pad_token_id", 259}})
      EXPECT_EQ(json::parse(read_all(scratch.path(name)))[key], id) << name << " " << key;
  EXPECT_EQ(json::parse(read_all(scratch.path("hf/generation_config.json")))["unk_token_id"], 65);

  save(scratch.path("m.gguf"), "gguf", model);
  const GgufFile file(scratch.path("m.gguf"));
  EXPECT_EQ(file->string("tokenizer.chat_template"), kTemplate);
  EXPECT_EQ(file->integer("tokenizer.ggml.eos_token_id", 0, 300), 258);
  EXPECT_EQ(file->integer("tokenizer.ggml.eot_token_id", 0, 300), 256);
  EXPECT_EQ(file->integer("tokenizer.ggml.eom_token_id", 0, 300), 257);
  EXPECT_EQ(file->integer("tokenizer.ggml.bos_token_id", 0, 300), 257);
  EXPECT_EQ(file->integer("tokenizer.ggml.unknown_token_id", 0, 300), 65);
  EXPECT_EQ(file->integer("tokenizer.ggml.padding_token_id", 0, 300), 259);
  EXPECT_FALSE(file->boolean("tokenizer.ggml.add_bos_token"));
  EXPECT_EQ(load_model(scratch.path("m.gguf")).end_tokens.size(), gguf_end_tokens);

  save(scratch.path("qkv"), "qkv", model);
  EXPECT_EQ(read_all(scratch.path("qkv/chat_template.jinja")), kTemplate);
}

// Of several files, the first that names a token wins; files that name none are skipped, malformed ones refused.
TEST(TextFacts, NamesOfADirectory) {
  const Scratch scratch;
  save(scratch.path("m"), "hf", {small_llama(), tokenizer(), {}, ""});
  const auto names = [&](const char* tokenizer_config, const char* generation_config) {
    scratch.file("m/tokenizer_config.json", tokenizer_config);
    scratch.file("m/generation_config.json", generation_config);
    return load_model(scratch.path("m")).named;
  };
  const char* texts = R"({"bos_token": {"__type": "AddedToken", "content": "<|im_start|>"}, "pad_token": "word"})";
  EXPECT_EQ(names(texts, R"({"bos_token_id": 3, "unk_token_id": 4, "pad_token_id": 5})"), NamedTokens({257, 4, 259}));
  EXPECT_EQ(names(R"({"bos_token": null, "pad_token": "a word that is no token"})",
                  R"({"bos_token_id": 269, "pad_token_id": -1, "unk_token_id": 270})"),
            NamedTokens({269, -1, -1}));
  EXPECT_EQ(names("{}", "{}"), NamedTokens());
  for (const char* bad : {"[]", R"({"bos_token": 1})", R"({"pad_token": {"text": "word"}})", R"({"unk_token": ["a"]})"})
    EXPECT_THROW(names(bad, "{}"), FileError) << bad;
  for (const char* bad : {R"({"bos_token_id": "1"})", R"({"pad_token_id": -2})", R"({"unk_token_id": 1e3})"})
    EXPECT_THROW(names("{}", bad), FileError) << bad;
}

// The begin token and the unknown token of the tokenizer get those names if a file has no others.
TEST(TextFacts, NamesFromTheTokenizer) {
  const Scratch scratch;
  TokenizerData data = tokenizer().data();
  data.begin_token = 257;
  data.unknown_token = 256;
  for (const std::string format : {"qkv", "gguf", "hf"}) {
    save(scratch.path(format), format, {small_llama(), Tokenizer::from_data(data), {}, ""});
    const LoadedModel again = load_model(scratch.path(format));
    EXPECT_EQ(again.tokenizer.begin_token(), 257) << format;
    EXPECT_EQ(again.named, NamedTokens({257, 256, -1})) << format;
  }
  // GGUF has a single key for both.
  save(scratch.path("gguf"), "gguf", {small_llama(), Tokenizer::from_data(data), {}, "", {.begin = 258}});
  EXPECT_EQ(load_model(scratch.path("gguf")).named.begin, 257);
}

TEST(TextFacts, InvalidFactsAreRefused) {
  const Scratch scratch;
  for (const std::string format : {"qkv", "gguf", "hf"})
    for (const TextFacts& facts :
         {TextFacts{{270}, ""}, TextFacts{{256, -1}, ""}, TextFacts{{}, std::string(largest_chat_template + 1, 'x')},
          TextFacts{{}, "", {270, -1, -1}}, TextFacts{{}, "", {-1, -2, -1}}, TextFacts{{}, "", {-1, -1, 270}}})
      EXPECT_THROW(save(scratch.path("x"), format,
                        {small_llama(), tokenizer(), facts.end_tokens, facts.chat_template, facts.named}),
                   std::invalid_argument)
          << format;
  EXPECT_EQ(scratch.entries(), 0);
  const std::string path = scratch.path("m");
  save(path, "qkv", {small_llama(), tokenizer(), {258}, kTemplate});
  for (const char* bad : {"{", R"({"eos_token_id": 270})", R"({"eos_token_id": "a"})", R"({"eos_token_id": [-1]})"}) {
    scratch.file("m/generation_config.json", bad);
    EXPECT_THROW(load_model(path), FileError) << bad;
  }
  scratch.file("m/generation_config.json", "{}");
  EXPECT_THAT(load_model(path).end_tokens, ElementsAre(256));
  scratch.file("m/chat_template.jinja", std::string(largest_chat_template + 1, 'x'));
  EXPECT_THROW(load_model(path), FileError);
  scratch.file("m/chat_template.jinja", "");
  EXPECT_EQ(load_model(path).chat_template, "");
}

}  // namespace
}  // namespace qkv
