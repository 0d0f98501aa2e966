// SPDX-License-Identifier: Apache-2.0
#include "corpus_options.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <stdexcept>

#include "cli.h"
#include "common_options.h"
#include "qkv/interrupt.h"
#include "qkv/model_file.h"
#include "train_progress.h"

namespace qkv::cli {
namespace {

constexpr std::int64_t kLargestVocabulary = 1'000'000;

void stop_if_interrupted() {
  if (interrupt_requested()) throw std::runtime_error("interrupted; nothing was written");
}

Tokenizer learn(const Corpus& corpus, std::int64_t size) {
  Progress reading("counting pieces", 0, true), learning("training BPE", 0, true);
  BpeProgress progress;
  progress.on_text = [&](std::int64_t done, std::int64_t total) {
    stop_if_interrupted();
    reading.update(static_cast<double>(done), static_cast<double>(total));
  };
  progress.on_token = [&](std::int64_t done, std::int64_t total) {
    stop_if_interrupted();
    reading.hide();
    learning.update(static_cast<double>(done), static_cast<double>(total));
  };
  Tokenizer tokenizer = train_bpe(corpus, size, progress);
  learning.hide();
  print(fmt::format("tokenizer: BPE, {} tokens, trained in {:.1f} s\n", tokenizer.size(), reading.seconds()));
  return tokenizer;
}

// Segments are learned from the whole text at once, which must fit in memory.
Tokenizer learn_harris(const Corpus& corpus, std::int64_t size) {
  Progress progress("training Harris segments", 0, true);
  std::string text;
  corpus.read_text(CorpusPart::training, [&](std::string_view part, bool) {
    stop_if_interrupted();
    text += part;
    return true;
  });
  Tokenizer tokenizer = Tokenizer::train_harris(text, size);
  progress.hide();
  print(fmt::format("tokenizer: Harris segments, {} tokens, trained in {:.1f} s\n", tokenizer.size(),
                    progress.seconds()));
  return tokenizer;
}

}  // namespace

void add_text_options(CLI::App& command, TextOptions& options, const std::string& group) {
  command.add_option("--field", options.field, "Text field of .jsonl lines")
      ->type_name("NAME")
      ->capture_default_str()
      ->take_last()
      ->group(group);
  add_choice(command, "--format", options.format, {"auto", "text", "jsonl"},
             "Input format; auto: .jsonl and .ndjson are JSON lines")
      ->take_last()
      ->group(group);
  command
      .add_option("--document-separator", options.separator, "Text between the documents of a plain text file [none]")
      ->type_name("TEXT")
      ->take_last()
      ->group(group);
  command.add_flag("--skip-bad-lines", options.skip_bad_lines, "Skip and count JSON lines without a document")
      ->group(group);
}

CorpusOptions corpus_options(const TextOptions& options, double validation_fraction, const std::string& stream_folder) {
  CorpusOptions corpus;
  corpus.validation_fraction = validation_fraction;
  corpus.field = options.field;
  corpus.format = options.format == "text"    ? TextFormat::plain
                  : options.format == "jsonl" ? TextFormat::json_lines
                                              : TextFormat::by_name;
  corpus.document_separator = options.separator;
  corpus.skip_bad_lines = options.skip_bad_lines;
  corpus.stream_folder = stream_folder;
  return corpus;
}

Corpus read_texts(const std::vector<std::string>& paths, const CorpusOptions& options) {
  constexpr std::size_t kNamed = 3;
  Corpus corpus = Corpus::read(paths, options);
  const std::vector<Corpus::Skipped>& skipped = corpus.skipped();
  if (skipped.empty()) return corpus;
  std::string names;
  for (std::size_t i = 0; i < std::min(kNamed, skipped.size()); ++i)
    names += (i > 0 ? "; " : "") + skipped[i].path + " " + skipped[i].reason;
  if (skipped.size() > kNamed) names += "; ...";
  print_error(fmt::format("qkv: warning: {} skipped: {}\n",
                          skipped.size() == 1 ? "1 file is" : fmt::format("{} files are", skipped.size()), names));
  return corpus;
}

std::optional<std::int64_t> learnt_size(const std::string& spec) {
  const std::size_t colon = spec.find(':');
  const std::string kind = spec.substr(0, colon);
  if (colon == std::string::npos || (kind != "bpe" && kind != "harris")) return std::nullopt;
  std::int64_t size = 0;
  const char* const end = spec.data() + spec.size();
  const auto [stop, error] = std::from_chars(spec.data() + colon + 1, end, size);
  if (error != std::errc() || stop != end || size < 257 || size > kLargestVocabulary) {
    throw UsageError(
        fmt::format("--tokenizer {}:SIZE expected a SIZE from 257 to {}; found '{}'", kind, kLargestVocabulary, spec));
  }
  return size;
}

Tokenizer load_tokenizer(const std::string& path) {
  if (path.find_first_of("./") == std::string::npos && !std::filesystem::exists(path))
    throw UsageError("--tokenizer expected bytes, bpe:SIZE, harris:SIZE or the path of a tokenizer or model; found '" +
                     path + "', and no such file exists" + (path == "bpe" ? " (did you mean bpe:4096?)" : ""));
  if (std::filesystem::is_directory(path)) return Tokenizer::load(path + "/tokenizer.json");
  return path.ends_with(".gguf") || path.ends_with(".bin") ? load_model_tokenizer(path) : Tokenizer::load(path);
}

Tokenizer make_tokenizer(const std::string& spec, const Corpus& corpus) {
  if (spec == "bytes") return Tokenizer::bytes();
  if (const auto size = learnt_size(spec))
    return spec.starts_with("bpe:") ? learn(corpus, *size) : learn_harris(corpus, *size);
  return load_tokenizer(spec);
}

TokenDataset tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& path) {
  Progress progress("tokenizing", 0, true);
  note_end_token_as_text(corpus, tokenizer);
  TokenDataset tokens = TokenDataset::tokenize(corpus, tokenizer, path, [&](std::int64_t done, std::int64_t total) {
    stop_if_interrupted();
    progress.update(static_cast<double>(done), static_cast<double>(total));
  });
  progress.hide();
  warn_of_bad_lines(corpus);
  return tokens;
}

void note_end_token_as_text(const Corpus& corpus, const Tokenizer& tokenizer) {
  constexpr std::int64_t kEnough = 8 << 20;  // bytes, from the beginning
  if (tokenizer.end_token() < 0) return;
  const std::string mark = tokenizer.decode(tokenizer.end_token());
  if (mark.size() < 3) return;
  std::int64_t seen = 0;
  bool found = false;
  corpus.read_text(CorpusPart::all, [&](std::string_view text, bool) {
    seen += static_cast<std::int64_t>(text.size());
    found = text.find(mark) != std::string_view::npos;
    return !found && seen < kEnough;
  });
  if (found)
    print_error(
        fmt::format("qkv: note: the text contains the tokenizer's end token, {0}, spelled out, which is read as "
                    "letters; --document-separator '{0}' splits a plain text there\n",
                    mark));
}

void warn_of_bad_lines(const Corpus& corpus) {
  const std::int64_t count = corpus.bad_lines();
  if (count > 0)
    print_error(fmt::format("qkv: warning: {} skipped; the first: {}\n",
                            count == 1 ? "1 line is" : fmt::format("{} lines are", count), corpus.first_bad_line()));
}

std::optional<std::string> token_file(const std::vector<std::string>& data) {
  for (const std::string& path : data) {
    if (!TokenDataset::is_token_file(path)) continue;
    if (data.size() > 1) throw UsageError(fmt::format("--data: '{}' is a token file and must be the only one", path));
    return path;
  }
  return std::nullopt;
}

}  // namespace qkv::cli
