// SPDX-License-Identifier: Apache-2.0
// The tokens of a run: text tokenized into the run's directory, or a link to a token file from qkv tokenize.
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

// The tokenizer and tokens of a new run. Calls check(vocabulary size, or its upper bound if a BPE is still to be
// trained) before the long work, and make_directory() before anything is written. ctx_len: of the model, to reject a
// too short text early. own: the tokenizer of the --init model, which a token file must match; null: chosen by the
// settings.
TrainData train_data(const TrainSettings& settings, std::int64_t ctx_len, const Tokenizer* own,
                     const std::function<void(std::int64_t)>& check, const std::function<void()>& make_directory);

// The tokens of a resumed run. The text of a run cannot change.
TokenDataset data_to_resume(const TrainSettings& settings);

}  // namespace qkv::cli
