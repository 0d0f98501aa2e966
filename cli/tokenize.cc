// SPDX-License-Identifier: Apache-2.0
// qkv tokenize: tokenizes text of any size into a token file.
#include <fmt/format.h>

#include <filesystem>

#include "cli.h"
#include "corpus_options.h"
#include "number_options.h"
#include "output_paths.h"
#include "qkv/interrupt.h"
#include "train_progress.h"

namespace {

namespace fs = std::filesystem;
using namespace qkv::cli;

struct Options {
  std::vector<std::string> data;
  std::string tokenizer, out, tokenizer_out;
  double validation_fraction = 0.1;
  TextOptions text;
};

void run(const Options& options) {
  learnt_size(options.tokenizer);  // rejects an invalid SIZE before the long work
  // A token file among the texts is rejected when they are read.
  const std::string over = qkv::TokenDataset::is_token_file(options.out) ? "" : text_at(options.data, options.out);
  check_outputs({options.tokenizer, over, text_at(options.data, options.tokenizer_out)},
                {{"--out", options.out}, {"--tokenizer-out", options.tokenizer_out}});
  qkv::install_interrupt_latch();
  const std::string folder = fs::path(options.out).parent_path().string();
  const qkv::Corpus corpus = read_texts(
      options.data, corpus_options(options.text, options.validation_fraction, folder.empty() ? "." : folder));
  const qkv::Tokenizer tokenizer = make_tokenizer(options.tokenizer, corpus);
  if (!options.tokenizer_out.empty()) tokenizer.save(options.tokenizer_out);
  if (tokenizer.end_token() < 0) print("note: the tokenizer has no end token, so documents are not separated\n");
  const Progress clock("", 0, false);
  const qkv::TokenDataset tokens = tokenize(corpus, tokenizer, options.out);
  const double seconds = clock.seconds();
  const std::int64_t training = tokens.training().size(), validation = tokens.validation().size();
  const std::int64_t bytes = tokens.training().bytes() + tokens.validation().bytes();
  print(
      fmt::format("{}: {} tokens; files: {}, documents: {}, text bytes: {} ({:.2f} per token)\n", options.out,
                  training + validation, corpus.file_count(), tokens.document_count(), bytes,
                  static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(1, training + validation))));
  print(fmt::format(
      "training tokens: {}, validation tokens: {}; vocabulary {}, {} bytes per token; {:.1f} s, {:.1f} MB/s\n",
      training, validation, tokens.vocab_size(), tokens.vocab_size() <= 65536 ? 2 : 4, seconds,
      static_cast<double>(corpus.bytes()) / 1e6 / seconds));
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Tokenize text of any size into a token file");
  const auto options = std::make_shared<Options>();
  command->add_option("--data", options->data, "Text files, .jsonl files, directories, or - for standard input")
      ->required()
      ->type_name("FILE|DIR...");
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "bytes, BPE or Harris segments trained on this text, a tokenizer.json or a model")
      ->required()
      ->take_last()
      ->type_name("bytes|bpe:SIZE|harris:SIZE|FILE|DIR");
  command->add_option("--out", options->out, "Token file to write (contains the tokenizer)")
      ->required()
      ->take_last()
      ->type_name("FILE");
  command->add_option("--tokenizer-out", options->tokenizer_out, "Also write the tokenizer as tokenizer.json")
      ->take_last()
      ->type_name("FILE");
  add_number(*command, "--val-fraction", options->validation_fraction,
             "Fraction of the text, at its end, for validation")
      ->check(below_one())
      ->capture_default_str()
      ->take_last()
      ->type_name("SHARE");
  add_text_options(*command, options->text, "Options");
  add_threads_option(*command);
  command->callback([options] { run(*options); });
}

const Subcommand kTokenize(15, add);

}  // namespace
