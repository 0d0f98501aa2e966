// SPDX-License-Identifier: Apache-2.0
#include "train_data.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli.h"
#include "corpus_options.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSmallText = 256 * 1024;  // bytes; smaller texts use byte tokens
constexpr std::int64_t kDefaultBpe = 4096;

std::string tokenizer_spec(const TrainSettings& settings, std::int64_t text_bytes) {
  if (!settings.tokenizer.empty()) return settings.tokenizer;
  if (!settings.preset.empty()) return fmt::format("bpe:{}", preset(settings.preset).vocab_size);
  return text_bytes < kSmallText ? "bytes" : fmt::format("bpe:{}", kDefaultBpe);
}

// The vocabulary size; an upper bound if the text is short.
std::int64_t vocabulary_of(const std::string& spec) {
  if (spec == "bytes") return Tokenizer::bytes().size();
  const auto size = learnt_size(spec);
  return size ? *size : load_tokenizer(spec).size();
}

Corpus read_corpus(const TrainSettings& settings) {
  const std::string folder = fs::absolute(settings.out).parent_path().string();  // --out may not exist yet
  return read_texts(settings.data, corpus_options(settings.text, settings.validation_fraction, folder));
}

std::string tokens_path(const TrainSettings& settings) { return settings.out + "/tokens.bin"; }

// Makes the run's tokens.bin a link to a token file, which may be too large to copy.
void point_to(const std::string& file, const std::string& link) {
  std::error_code error;
  if (fs::equivalent(file, link, error)) return;
  fs::remove(link, error);
  fs::create_symlink(fs::absolute(file), link, error);
  if (error) throw FileError(link, "cannot be created: " + error.message());
}

void refuse_text_options(const TrainSettings& settings, const std::string& file, bool tokenizer_too) {
  const auto refuse = [&](const std::string& option) {
    throw UsageError(fmt::format("{} is for text; '{}' is a token file and has its own", option, file));
  };
  if (settings.validation_fraction_option->count() > 0) refuse("--val-fraction");
  if (tokenizer_too && !settings.tokenizer.empty()) refuse("--tokenizer");
}

void refuse_other_tokenizer(const TrainSettings& settings, const std::string& file,
                            const std::optional<Tokenizer>& tokenizer, const Tokenizer& own) {
  if (tokenizer && tokenizer->json() == own.json()) return;
  const std::string found =
      tokenizer ? fmt::format("was made with a different tokenizer ({} tokens) than {} ({})", tokenizer->size(),
                              settings.init, own.size())
                : fmt::format("does not contain its tokenizer, which must be that of {}", settings.init);
  throw FileError(file, found + fmt::format("; create it with qkv tokenize --tokenizer {}", settings.init));
}

TrainData of_token_file(const TrainSettings& settings, const std::string& file, const Tokenizer* own,
                        const std::function<void(std::int64_t)>& check, const std::function<void()>& make_directory) {
  TokenDataset tokens = TokenDataset::open(file);
  std::optional<Tokenizer> tokenizer = tokens.tokenizer();
  refuse_text_options(settings, file, tokenizer.has_value());
  if (own) refuse_other_tokenizer(settings, file, tokenizer, *own);
  if (!tokenizer) {
    if (settings.tokenizer.empty())
      throw FileError(file, "contains no tokenizer; pass its tokenizer.json with --tokenizer");
    tokenizer = load_tokenizer(settings.tokenizer);
  }
  check(tokenizer->size());
  make_directory();
  point_to(file, tokens_path(settings));
  return {std::move(tokens), std::move(*tokenizer)};
}

}  // namespace

TrainData train_data(const TrainSettings& settings, std::int64_t ctx_len, const Tokenizer* own,
                     const std::function<void(std::int64_t)>& check, const std::function<void()>& make_directory) {
  if (const auto file = token_file(settings.data)) return of_token_file(settings, *file, own, check, make_directory);
  const Corpus corpus = read_corpus(settings);
  const std::string spec = own ? "" : tokenizer_spec(settings, corpus.bytes());
  const std::int64_t bytes = corpus.bytes(CorpusPart::training);
  if (spec == "bytes" && bytes <= ctx_len) {
    throw FileError(settings.data.front(), fmt::format("expected at least {} bytes of training text, one window of "
                                                       "ctx_len {} and the token after it; found {}",
                                                       ctx_len + 1, ctx_len, bytes));
  }
  check(own ? own->size() : vocabulary_of(spec));
  Tokenizer tokenizer = own ? *own : make_tokenizer(spec, corpus);
  make_directory();
  // An interrupted start may have left a link to the user's token file, which must not be overwritten.
  if (fs::is_symlink(tokens_path(settings))) fs::remove(tokens_path(settings));
  TokenDataset tokens = tokenize(corpus, tokenizer, tokens_path(settings));
  return {std::move(tokens), std::move(tokenizer)};
}

TokenDataset data_to_resume(const TrainSettings& settings) {
  const std::string path = tokens_path(settings);
  if (settings.data.empty()) {
    if (fs::is_symlink(path) && !fs::exists(path))
      throw FileError(path, fmt::format("points to {}, which does not exist; pass it with --data",
                                        fs::read_symlink(path).string()));
    return TokenDataset::open(path);
  }
  const auto changed = [&](const char* what) {
    return FileError(settings.data.front(), fmt::format("is not the {} that the run in {} started with; leave out "
                                                        "--data to continue",
                                                        what, settings.out));
  };
  if (const auto file = token_file(settings.data)) {
    refuse_text_options(settings, *file, false);
    TokenDataset tokens = TokenDataset::open(*file);
    if (fs::exists(path) && TokenDataset::open(path).checksum() != tokens.checksum()) throw changed("token file");
    point_to(*file, path);
    return tokens;
  }
  const Corpus corpus = read_corpus(settings);
  if (!fs::exists(path)) return tokenize(corpus, Tokenizer::load(settings.out + "/tokenizer.json"), path);
  TokenDataset data = TokenDataset::open(path);
  const bool other_split = settings.validation_fraction_option->count() > 0 && data.cut() > 0 &&
                           data.cut() != corpus.bytes(CorpusPart::training);
  if (data.source_checksum() != corpus.checksum() || other_split) throw changed("text (or not the split)");
  return data;
}

}  // namespace qkv::cli
