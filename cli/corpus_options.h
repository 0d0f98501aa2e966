// SPDX-License-Identifier: Apache-2.0
// Shared by the commands that read text: options, tokenizer and progress.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "qkv/dataset.h"

namespace qkv::cli {

struct TextOptions {
  std::string field = "text";
  std::string format = "auto";
  std::string separator;
  bool skip_bad_lines = false;
};
// --field, --format, --document-separator and --skip-bad-lines.
void add_text_options(CLI::App& command, TextOptions& options, const std::string& group);
// Corpus::read, with a warning that counts the skipped files.
Corpus read_texts(const std::vector<std::string>& paths, const CorpusOptions& options);
// stream_folder: where standard input and pipes are spooled.
CorpusOptions corpus_options(const TextOptions& options, double validation_fraction, const std::string& stream_folder);

// SIZE of "bpe:SIZE" or "harris:SIZE", nothing for any other string. Throws UsageError for an invalid SIZE.
std::optional<std::int64_t> learnt_size(const std::string& spec);
// From a tokenizer.json, a model directory, a GGUF file (.gguf) or an ANDREA checkpoint (.bin).
Tokenizer load_tokenizer(const std::string& path);
// "bytes", "bpe:SIZE" or "harris:SIZE" (trained on the training split), or anything load_tokenizer accepts.
// Shows training progress on standard error and the result on standard output.
Tokenizer make_tokenizer(const std::string& spec, const Corpus& corpus);
// TokenDataset::tokenize with progress on standard error. Ctrl-C ends it with an exception if the latch of
// qkv/interrupt.h is installed.
TokenDataset tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& path);
// On standard error: that the beginning of the text spells out the end token; how many lines were passed over.
void note_end_token_as_text(const Corpus& corpus, const Tokenizer& tokenizer);
void warn_of_bad_lines(const Corpus& corpus);

// The token file given as --data, if any; throws UsageError if there are other files too.
std::optional<std::string> token_file(const std::vector<std::string>& data);

}  // namespace qkv::cli
