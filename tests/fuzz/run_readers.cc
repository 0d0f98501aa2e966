// SPDX-License-Identifier: Apache-2.0
// Files that training and generation leave behind: prompt caches, token files, training text, checkpoints, notes. Where
// a file contains its own checksums, most inputs get correct ones, since nothing after them would be read otherwise.
#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fuzz/format_seeds.h"
#include "fuzz/reader_case.h"
#include "fuzz/reader_folder.h"
#include "qkv/corpus.h"
#include "qkv/dataset.h"
#include "qkv/error.h"
#include "qkv/prompt_cache.h"
#include "train/checkpoint_directory.h"
#include "train/run_log.h"
#include "train/run_notes.h"
#include "train/run_state.h"
#include "train/text_chunks.h"
#include "train/token_file.h"

namespace qkv::test {
namespace {

unsigned take_byte(std::string_view& bytes) {
  if (bytes.empty()) return 0;
  const auto first = static_cast<unsigned char>(bytes.front());
  bytes.remove_prefix(1);
  return first;
}

std::uint64_t number_at(const std::string& file, std::size_t at, std::size_t width = 8) {
  std::uint64_t value = 0;
  std::memcpy(&value, file.data() + at, width);
  return value;
}
void put(std::string& file, std::size_t at, std::uint64_t value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

Model& writing_model() {
  static Model model = [] {
    ModelConfig config = smallest();
    config.n_layer = 2;
    config.vocab_size = 5;
    config.ctx_len = 6;
    return Model(config, 3);
  }();
  return model;
}

constexpr DType kCacheTypes[] = {DType::f32, DType::bf16, DType::f16, DType::q8_0};

// type: an index into kCacheTypes
std::string prompt_seed(std::size_t type) {
  TextContext context;
  prefill(writing_model(), std::vector<std::int32_t>{1, 2, 4}, context, kCacheTypes[type]);
  save_prompt_cache(folder().path("prompt"), writing_model(), context);
  return std::string(1, static_cast<char>(type)).append(folder().read("prompt"));
}

// A byte of flags (low bits: the cache type; 4: keep the checksum; 8: keep the fingerprint), then the file.
void read_prompt(std::string_view bytes) {
  static const std::uint64_t fingerprint = number_at(prompt_seed(0), 17);
  const unsigned flags = take_byte(bytes);
  std::string file(bytes);
  if (!(flags & 8) && file.size() >= 24) put(file, 16, fingerprint);
  if (!(flags & 4) && file.size() >= 8) put(file, file.size() - 8, XXH3_64bits(file.data(), file.size() - 8));
  TextContext context;
  context.state = writing_model().make_state(kCacheTypes[flags & 3]);
  load_prompt_cache(folder().write("prompt", file), writing_model(), context);
  if (context.state.size() != static_cast<std::int64_t>(context.tokens.size()))
    throw std::logic_error("the number of tokens differs from the number of keys");
  if (context.tokens.size() >= 6) return;
  std::vector<std::int32_t> text = context.tokens;
  text.push_back(3);
  prefill(writing_model(), text, context);  // for any keys and values
}

std::vector<std::string> prompt_seeds() { return {prompt_seed(0), prompt_seed(1), prompt_seed(2), prompt_seed(3)}; }

// Writes the checksums that the rest of the header requires.
void put_checksums(std::string& file) {
  if (file.size() < sizeof(TokenFileHeader)) return;
  const std::uint64_t rest = file.size() - 128, tokenizer = number_at(file, 96);
  const bool old = number_at(file, 8, 4) == 1;
  const std::uint64_t tokens = old || tokenizer > rest ? rest : rest - tokenizer;
  BlockChecksum blocks;
  blocks.add(file.data() + 128, tokens);
  put(file, 32, old ? XXH3_64bits(file.data() + 128, tokens) : blocks.value());
  if (!old) put(file, 104, XXH3_64bits(file.data() + 128 + tokens, rest - tokens));
  put(file, 120, XXH3_64bits(file.data(), 120));
}

// A byte of flags (1: keep the checksums), then tokens.bin.
void read_tokens(std::string_view bytes) {
  const unsigned flags = take_byte(bytes);
  std::string file(bytes);
  if (!(flags & 1)) put_checksums(file);
  const std::string path = folder().write("tokens.bin", file);
  TokenDataset::is_token_file(path);
  const TokenDataset data = TokenDataset::open(path);
  for (const TokenPart& part : {data.training(), data.validation()}) {
    std::int32_t tokens[4], targets[4];
    for (std::int64_t at = 0; at + 1 < part.size(); at += 3) {
      part.read_window(at, tokens, targets);
      for (const std::int32_t token : tokens)
        if (token < 0 || token >= data.vocab_size()) throw std::logic_error("a token outside the vocabulary");
    }
    if (part.window_count(2) > 0) part.window_start(2, 1, 5);
  }
  data.tokenizer();
}

std::vector<std::string> tokens_seeds() {
  const std::string plain(1, '\0');
  std::vector<std::string> seeds;
  const Tokenizer bytes = Tokenizer::bytes();
  TokenDataset::tokenize(Corpus::from_text("In the beginning God\ncreated the heaven\nand the earth.\n"), bytes,
                         folder().path("tokens.bin"));
  std::string file = folder().read("tokens.bin");
  const std::uint64_t tokenizer = number_at(file, 96);
  file.resize(file.size() - tokenizer);  // it is long, and tokenizer.json has its own target
  put(file, 96, 0);
  put_checksums(file);
  seeds.push_back(plain + file);
  file += kTinyTokenizer;
  put(file, 96, std::string_view(kTinyTokenizer).size());
  file.replace(128, 2, std::string(2, '\0'));
  seeds.push_back(plain + file);
  std::string old = seeds[0].substr(1);
  old[8] = 1;
  std::fill(old.begin() + 72, old.begin() + 128, '\0');
  seeds.push_back(plain + old);
  std::string wide = seeds[0].substr(1, 128);
  wide[12] = 4;
  put(wide, 40, 3);
  put(wide, 48, 2);
  for (const char id : {1, 2, 3, 4, 5}) wide += std::string{id, 0, 0, 0};
  seeds.push_back(plain + wide);
  return seeds;
}

// The chunks of a few bytes must join to the corpus.
void read_in_small_chunks(const Corpus& corpus, std::string_view bytes) {
  std::string together;
  for (const CorpusPart part : {CorpusPart::training, CorpusPart::validation}) {
    ChunkReader reader(corpus, part, {.chunk = 8, .longest_text = 32, .longest_line = 64});
    TextChunk chunk;
    while (reader.next(chunk)) {
      if (chunk.bytes.size() > 128) throw std::logic_error("a chunk is longer than it may be");
      if (chunk.at != static_cast<std::int64_t>(together.size())) throw std::logic_error("a chunk at the wrong offset");
      each_text(chunk, reader.rules(), [](std::string_view, bool) {});
      together += chunk.bytes;
    }
  }
  if (together != bytes) throw std::logic_error("the chunks are not the file");
}

// "t": plain text, "j": JSON lines; a capital letter: repeated to fill more than one chunk; "s" and "k": text and JSON
// lines in chunks of a few bytes; then the file.
void read_lines(std::string_view bytes) {
  const unsigned kind = take_byte(bytes);
  const bool plain = kind == 't' || kind == 'T' || kind == 's';
  std::string many(bytes);
  while ((kind == 'T' || kind == 'J') && !bytes.empty() && many.size() < 300'000) many += std::string(many);
  bytes = many;
  last_cut(bytes);
  const Corpus corpus = Corpus::read({folder().write(plain ? "lines.txt" : "lines.jsonl", bytes)});
  if (corpus.bytes() != corpus.bytes(CorpusPart::training) + corpus.bytes(CorpusPart::validation))
    throw std::logic_error("the parts are not the file");
  if (kind == 's' || kind == 'k') return read_in_small_chunks(corpus, bytes);
  corpus.checksum();
  std::string text;
  for (const CorpusPart part : {CorpusPart::training, CorpusPart::validation})
    corpus.read_text(part, [&](std::string_view stretch, bool) {
      text += stretch;
      return true;
    });
  if (plain && text != bytes) throw std::logic_error("the parts are not the text");
}

std::vector<std::string> lines_seeds() {
  return {
      "tIn the beginning\nGod \xC3\xA9\nand the earth\n",
      "TIn the beginning\nGod\n",
      "j{\"text\": \"a\"}\n\n{\"x\": [1, {}], \"text\": \"b\\n\"}\n",
      "sIn the beginning God\ncreated the heaven\nand the earth, \xC3\xA9 \xE2\x80\x83 without a newline for a while\n",
      "k{\"text\": \"a\"}\n{\"text\": \"In the beginning\"}\n\n{\"text\": \"God\"}\n",
      "j{\"n\": -1.5, \"u\": 7, \"t\": true, \"o\": {\"text\": 3}, \"z\": null, \"text\": \"\\u00e9\"}"};
}

// "=": unchanged, or ":": with a valid checksum; then checkpoint.json.
void read_checkpoint(std::string_view bytes) {
  static const bool made = std::filesystem::create_directories(folder().path("checkpoint"));
  if (!made) throw std::logic_error("no folder");
  const bool given = take_byte(bytes) == ':';
  nlohmann::json all;
  if (given) all = nlohmann::json::parse(bytes, nullptr, false);
  if (all.is_object()) {
    all.erase("checksum");
    const std::string text = all.dump();
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx",
                  static_cast<unsigned long long>(XXH3_64bits(text.data(), text.size())));
    all["checksum"] = digits;
  }
  folder().write("checkpoint/checkpoint.json", all.is_object() ? all.dump() : std::string(bytes));
  const CheckpointList list = read_checkpoint_list(folder().path("checkpoint"));
  parse_run_state("checkpoint.json", list.state);
  if (list.files.size() < 4) verify_checkpoint_files(folder().path("checkpoint"), list);
}

std::vector<std::string> checkpoint_seeds() {
  std::filesystem::create_directories(folder().path("seed"));
  folder().write("seed/a", "abc");
  RunState state;
  state.step = 3;
  state.recent_losses = {1.5, 2};
  CheckpointList list{run_state_text(state, TrainConfig()), {}};
  std::vector<std::string> seeds;
  for (const bool with_files : {false, true}) {
    state.best_loss = 1;
    if (with_files)
      list = {run_state_text(state, TrainConfig()), {{"../seed/a", facts_of_file(folder().path("seed/a"))}}};
    write_checkpoint_list(folder().path("seed"), list);
    seeds.push_back(std::string(":").append(folder().read("seed/checkpoint.json")));
    seeds.push_back(std::string("=").append(folder().read("seed/checkpoint.json")));
  }
  return seeds;
}

// run.json, a zero byte, metrics.jsonl.
void read_notes(std::string_view bytes) {
  const std::string notes = folder().write("run.json", next_part(bytes));
  RunLog log(folder().write("metrics.jsonl", bytes));
  log.read_new_lines();
  read_run_notes(notes);
}

std::vector<std::string> notes_seeds() {
  RunNotes notes;
  notes.steps = 9;
  notes.facts = {{"Model", {{"layers", "2"}}}};
  notes.starts = {{0, 5, "stopped", "by hand"}, {3, 7, "", ""}};
  write_run_notes(folder().path("seed.json"), notes);
  const std::string all = folder().read("seed.json") + '\0';
  std::string samples = all, longest = all + R"({"step": 2, "sample": ")" + std::string(4100, 'a') + "\"}\n";
  for (int i = 0; i < 205; ++i)
    samples += R"({"step":2,"sample":"a"})"
               "\n";
  return {
      samples, longest,
      all +
          R"({"step": 1, "loss": 2.5, "grad_norm": 1, "learning_rate": 1e-3, "ms": 2, "tokens_per_s": 10, "spike": 7}
{"step": 2, "loss": null, "skipped": true, "peak_fraction": 0.5}
{"step": 2, "val_loss": 2.5, "bits_per_byte": 1.5, "val_tokens": 4, "best": true}
{"step": 2, "sample": "a a a", "repetition": 0.7, "repeats": true}
[]
)"};
}

}  // namespace

const std::map<std::string, Reader, std::less<>>& readers() {
  static const std::map<std::string, Reader, std::less<>> all = {{"prompt", {read_prompt, prompt_seeds}},
                                                                 {"tokens", {read_tokens, tokens_seeds}},
                                                                 {"lines", {read_lines, lines_seeds}},
                                                                 {"checkpoint", {read_checkpoint, checkpoint_seeds}},
                                                                 {"notes", {read_notes, notes_seeds}}};
  return all;
}

}  // namespace qkv::test
