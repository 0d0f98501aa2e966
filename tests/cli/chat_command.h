// SPDX-License-Identifier: Apache-2.0
// A small model with a chat template, for tests of qkv chat.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "generate_command.h"
#include "text/tokenizer_data.h"

namespace qkv_test {

inline constexpr const char* kTemplate =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// A model with random weights over bytes and ChatML's control tokens.
class ChatCommand : public GenerateCommand {
 protected:
  void SetUp() override {
    GenerateCommand::SetUp();
    write_model(512);
  }

  void write_model(std::int64_t ctx_len) {
    qkv::TokenizerData data = qkv::Tokenizer::bytes().data();
    for (const char* content : {"<|im_start|>", "<|im_end|>"}) {
      qkv::AddedToken token;
      token.id = static_cast<std::int32_t>(data.tokens.size());
      token.content = content;
      token.special = true;
      data.added.push_back(token);
      data.tokens.emplace_back(content);
    }
    const qkv::Tokenizer tokenizer = qkv::Tokenizer::from_data(data);
    qkv::ModelConfig config;
    config.n_layer = 1;
    config.n_head = 2;
    config.d_model = 32;
    config.vocab_size = tokenizer.size();
    config.ctx_len = ctx_len;
    qkv::Model model(config, 2);
    for (qkv::Tensor& tensor : *model.change_parameters())
      for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data()[i] *= 8;
    qkv::save_model(path("model"), model, tokenizer);
    write_template(kTemplate);  // replaces a previous test's template
  }
  void write_template(const std::string& text) const {
    std::ofstream(path("model/tokenizer_config.json")) << nlohmann::json{{"chat_template", text}}.dump();
  }
  Finished chat(const std::string& input, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"chat", "-m", path("model")});
    return run_qkv(more, input);
  }
};

// Replies are lines of letters here; control characters cannot occur.
inline const std::vector<std::string> kLetters = [] {
  std::vector<std::string> options = {"-n", "8", "--temp", "1", "-s", "3"};
  for (int id = 0; id < 259; ++id) {
    if (id >= 'a' && id <= 'z') continue;
    options.insert(options.end(), {"--logit-bias", std::to_string(id) + "-inf"});
  }
  return options;
}();

}  // namespace qkv_test
