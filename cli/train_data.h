// SPDX-License-Identifier: Apache-2.0
// Where the tokens of a run come from: text that is tokenised into the run's directory, or a token file of qkv tokenize
// that it points to.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "qkv/dataset.h"
#include "train_settings.h"

namespace qkv::cli {

struct TrainData {
  TokenDataset tokens;
  Tokenizer tokenizer;
};

// The tokenizer and the tokens of a new run. Calls check(size of the vocabulary; of a BPE not trained yet the
// largest it can have) before the long work, and make_directory() before anything is written. ctx_len: of the model, so
// that a text that is too short is refused early. own: the tokenizer that the model comes with, which a token file must
// have been made with; null: as the settings say.
TrainData train_data(const TrainSettings& settings, std::int64_t ctx_len, const Tokenizer* own,
                     const std::function<void(std::int64_t)>& check, const std::function<void()>& make_directory);

// The same for a resumed run, whose text must not have changed.
TokenDataset data_to_resume(const TrainSettings& settings);

}  // namespace qkv::cli
