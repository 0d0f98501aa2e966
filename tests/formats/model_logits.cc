// SPDX-License-Identifier: Apache-2.0
// model_logits FILE.gguf TOKENS.npy LOGITS.npy [TEXT]: writes the logits [tokens, vocab_size] of a model for tokens
// (int32, [tokens]), for scripts/check_gguf_model.py to compare. With TEXT, the tokens are those of that file's content
// under the model's tokenizer, and are written to TOKENS.npy.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <vector>

#include "formats/gguf_source.h"
#include "qkv/array_file.h"

namespace {

qkv::Model model_of(const qkv::ModelSource& source) {
  qkv::Model model(source.config());
  for (std::size_t i = 0; i < model.infos().size(); ++i) source.read(i, model.change_parameters()[i].view());
  return model;
}

void run(const std::vector<std::string>& arguments) {
  const auto source = qkv::open_gguf(arguments.at(0));
  if (arguments.size() > 3) {
    std::ifstream in(arguments[3], std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::vector<std::int32_t> ids = source->tokenizer().encode(text);
    qkv::save_npy(arguments[1], qkv::view(ids.data(), qkv::Dims{static_cast<std::int64_t>(ids.size())}));
    return;
  }
  const qkv::Tensor tokens = qkv::load_npy(arguments.at(1));
  qkv::Model model = model_of(*source);
  qkv::Batch batch;
  batch.batch = 1;
  batch.ctx = tokens.size();
  batch.tokens = {tokens.data<std::int32_t>(), static_cast<std::size_t>(tokens.size())};
  const qkv::Tensor logits = model.logits(batch);  // [1, tokens, vocab_size]
  qkv::save_npy(arguments.at(2), logits);
}

}  // namespace

int main(int count, char** values) {
  try {
    run({values + 1, values + count});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
