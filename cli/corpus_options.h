// SPDX-License-Identifier: Apache-2.0
// What the commands that read text share: its options, its tokenizer, and how far the work is.
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
// stream_folder: where standard input and pipes are put aside.
CorpusOptions corpus_options(const TextOptions& options, double validation_fraction, const std::string& stream_folder);

// SIZE of "bpe:SIZE" or "harris:SIZE", nothing for another text. Throws UsageError for a SIZE that cannot be.
std::optional<std::int64_t> learnt_size(const std::string& spec);
// That of a tokenizer.json, a model's directory, a GGUF file (.gguf) or a checkpoint of ANDREA (.bin).
Tokenizer load_tokenizer(const std::string& path);
// "bytes", "bpe:SIZE" or "harris:SIZE" (trained on the training split), or what load_tokenizer takes.
// Reports progress on standard error and the result on standard output.
Tokenizer make_tokenizer(const std::string& spec, const Corpus& corpus);
// TokenDataset::tokenize with a report on standard error. Ctrl-C ends it with an exception, if the latch of
// qkv/interrupt.h is installed.
TokenDataset tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& path);
// On standard error: that the beginning of the text spells out the end token; how many lines were passed over.
void note_end_token_as_text(const Corpus& corpus, const Tokenizer& tokenizer);
void warn_of_bad_lines(const Corpus& corpus);

// The token file among --data, if that is what was given; throws UsageError if it is not alone.
std::optional<std::string> token_file(const std::vector<std::string>& data);

}  // namespace qkv::cli
