// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "qkv/corpus.h"
#include "qkv/error.h"
#include "qkv/threads.h"
#include "train/test_directory.h"

namespace qkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

using Texts = std::vector<std::string>;

// Each document of a part, with its chunks joined.
Texts documents(const Corpus& corpus, CorpusPart part = CorpusPart::all) {
  Texts found;
  corpus.read_text(part, [&](std::string_view text, bool begins) {
    if (begins) found.emplace_back();
    found.back() += text;
    return true;
  });
  return found;
}
Texts training(const Corpus& corpus) { return documents(corpus, CorpusPart::training); }
Texts validation(const Corpus& corpus) { return documents(corpus, CorpusPart::validation); }

CorpusOptions fraction(double value) {
  CorpusOptions options;
  options.validation_fraction = value;
  return options;
}

TEST(Corpus, NonTextFilesAreSkippedInDirectoriesAndRefusedByName) {
  const TestDirectory directory;
  std::filesystem::create_directory(directory / "text");
  const auto text = [&](const char* name) { return directory / (std::string("text/") + name); };
  write(text("a"), "plain text");
  write(text("b.png"), std::string("\x89PNG\r\n\0\0binary", 16));
  write(text("c"), std::string(90, 'x') + std::string(10, '\xFF'));
  write(text("d.gz"), "packed");
  write(text("e"), "mostly text " + std::string(200, 'y') + "\xFF");  // a stray byte is tolerated
  write(directory / "outside", "not of this directory");
  std::filesystem::create_symlink(directory / "outside", text("f"));
  std::filesystem::create_symlink("a", text("g"));  // a link within the directory
  const Corpus corpus = Corpus::read({directory / "text"}, fraction(0));
  EXPECT_EQ(corpus.file_count(), 3);
  std::vector<std::string> skipped;
  for (const Corpus::Skipped& file : corpus.skipped()) skipped.push_back(file.path);
  EXPECT_THAT(skipped, ElementsAre(text("b.png"), text("c"), text("d.gz"), text("f")));
  EXPECT_THAT(corpus.skipped()[0].reason, testing::HasSubstr("NUL"));
  EXPECT_THAT(corpus.skipped()[1].reason, testing::HasSubstr("10 %"));
  EXPECT_THAT(corpus.skipped()[3].reason, testing::HasSubstr("link to outside"));
  for (const char* name : {"b.png", "c", "d.gz"}) EXPECT_THROW(Corpus::read({text(name)}), FileError) << name;
  CorpusOptions bytes = fraction(0);
  bytes.format = TextFormat::plain;
  EXPECT_EQ(Corpus::read({text("b.png"), text("c")}, bytes).bytes(), 116);
}

TEST(Corpus, AMissingFieldListsTheExistingOnes) {
  const TestDirectory directory;
  write(directory / "a.jsonl", "{\"title\": \"x\", \"body\": \"y\"}\n");
  const Corpus corpus = Corpus::read({directory / "a.jsonl"}, fraction(0));
  try {
    corpus.read_text(CorpusPart::all, [](std::string_view, bool) { return true; });
    ADD_FAILURE();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("expected the field 'text' on each line; found 'title' and 'body'"));
  }
}

TEST(Corpus, SplitsAtTheStartOfALine) {
  const std::string text = "one two three\nfour five six\nseven\neight\n";  // 40 bytes; 90 % is byte 36
  const Corpus corpus = Corpus::from_text(text);
  EXPECT_THAT(training(corpus), ElementsAre(text.substr(0, 36)));  // no line starts after it
  const Corpus quarter = Corpus::from_text(text, 0.5);
  EXPECT_THAT(training(quarter), ElementsAre("one two three\nfour five six\n"));
  EXPECT_THAT(validation(quarter), ElementsAre("seven\neight\n"));
  EXPECT_EQ(quarter.bytes(CorpusPart::training), 28);
  EXPECT_EQ(quarter.bytes(CorpusPart::validation), 12);
  EXPECT_EQ(quarter.bytes(), 40);
}

TEST(Corpus, NeverSplitsACharacter) {
  const std::string text =
      "ab\xE6\xAD\xAA\xE6\xAD\xAA"
      "cd";  // 10 bytes; the middle is inside the first character
  const Corpus corpus = Corpus::from_text(text, 0.7);
  EXPECT_THAT(training(corpus), ElementsAre("ab\xE6\xAD\xAA"));
}

TEST(Corpus, HasNoValidationPartIfRequested) {
  const Corpus corpus = Corpus::from_text("abc", 0);
  EXPECT_EQ(corpus.bytes(CorpusPart::training), 3);
  EXPECT_THAT(validation(corpus), IsEmpty());
  EXPECT_THROW(Corpus::from_text("abc", 1), std::invalid_argument);
  EXPECT_THROW(Corpus::from_text("abc", -0.1), std::invalid_argument);
}

TEST(Corpus, JoinsFilesAndSplitsOne) {
  const TestDirectory directory;
  write(directory / "a", "0123456789");
  write(directory / "b", "abcdefghij");
  const Corpus corpus = Corpus::read({directory / "a", directory / "b"}, fraction(0.25));
  EXPECT_THAT(training(corpus), ElementsAre("0123456789", "abcde"));
  EXPECT_THAT(validation(corpus), ElementsAre("fghij"));
  EXPECT_NE(corpus.checksum(), Corpus::read({directory / "b", directory / "a"}, fraction(0.25)).checksum());
  EXPECT_EQ(corpus.checksum(), Corpus::read({directory / "a", directory / "b"}, fraction(0.5)).checksum());
}

TEST(Corpus, ReadsBytesUnchanged) {
  const TestDirectory directory;
  const std::string text("\0\xFF\xC0\x80\r\n\0", 7);
  write(directory / "a", text);
  CorpusOptions bytes = fraction(0);
  bytes.format = TextFormat::plain;
  EXPECT_THAT(training(Corpus::read({directory / "a"}, bytes)), ElementsAre(text));
}

TEST(Corpus, ReadsTheFilesOfADirectory) {
  const TestDirectory directory;
  for (const char* folder : {"/text", "/text/b", "/text/.hidden"})
    std::filesystem::create_directory(directory.path() + folder);
  write(directory / "text/z", "last");
  write(directory / "text/b/a", "second");
  write(directory / "text/a", "first");
  write(directory / "text/empty", "");
  write(directory / "text/.notes", "not this");
  write(directory / "text/.hidden/a", "nor this");
  write(directory / "other", "before");
  const Corpus corpus = Corpus::read({directory / "other", directory / "text"}, fraction(0));
  EXPECT_THAT(documents(corpus), ElementsAre("before", "first", "second", "last"));
  EXPECT_EQ(corpus.file_count(), 4);
  EXPECT_EQ(corpus.file_name(2), directory / "text/b/a");
}

TEST(Corpus, ReadsAFieldOfEachJsonLine) {
  const TestDirectory directory;
  write(directory / "a.jsonl",
        "{\"id\": 1, \"text\": \"one\\ntwo\", \"more\": {\"text\": 5, \"list\": [\"x\", {}]}}\n"
        "\r\n"
        "  {\"text\": \"\"}\n"
        "{\"text\": \"\\u6b6a \\ud83e\\udd99\", \"body\": \"other\"}");  // no newline at the end
  CorpusOptions options = fraction(0);
  EXPECT_THAT(documents(Corpus::read({directory / "a.jsonl"}, options)), ElementsAre("one\ntwo", "\u6b6a \U0001F999"));
  options.format = TextFormat::plain;
  EXPECT_THAT(documents(Corpus::read({directory / "a.jsonl"}, options)).front(), HasSubstr("\"id\": 1"));
  write(directory / "b.txt", "{\"body\": \"b1\"}\n{\"body\": \"b2\"}\n");
  options.format = TextFormat::json_lines;
  options.field = "body";
  EXPECT_THAT(documents(Corpus::read({directory / "b.txt"}, options)), ElementsAre("b1", "b2"));
}

TEST(Corpus, SplitsBetweenJsonLines) {
  const TestDirectory directory;
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += "{\"text\": \"" + std::string(5000, static_cast<char>('a' + i)) + "\"}\n";
  write(directory / "a.jsonl", lines);
  const Corpus corpus = Corpus::read({directory / "a.jsonl"}, fraction(0.35));
  EXPECT_EQ(training(corpus).size(), 7u);
  EXPECT_THAT(validation(corpus), ElementsAre(std::string(5000, 'h'), std::string(5000, 'i'), std::string(5000, 'j')));
}

TEST(Corpus, NamesTheLineThatIsNotADocument) {
  const TestDirectory directory;
  const auto refused = [&](const std::string& line) -> std::string {
    const std::string before = "{\"text\": \"fine\"}\n";  // 17 bytes
    write(directory / "a.jsonl", before + line + "\n" + before);
    try {
      documents(Corpus::read({directory / "a.jsonl"}));
    } catch (const FileError& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_THAT(refused("{\"body\": \"x\"}"), HasSubstr("expected the field 'text' on each line; found 'body'"));
  EXPECT_THAT(refused("{\"body\": \"x\"}"), HasSubstr("17"));
  EXPECT_THAT(refused("{\"text\": 7}"), HasSubstr("to be a string"));
  EXPECT_THAT(refused("{\"text\": null}"), HasSubstr("to be a string"));
  EXPECT_THAT(refused("{\"text\": [\"x\"]}"), HasSubstr("to be a string"));
  EXPECT_THAT(refused("{\"text\": \"a\", \"text\": \"b\"}"), HasSubstr("twice"));
  EXPECT_THAT(refused("[\"text\"]"), HasSubstr("object"));
  EXPECT_THAT(refused("\"text\""), HasSubstr("object"));
  EXPECT_THAT(refused("{\"text\": \"a\"} x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused("{\"text\": \"a"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused("{\"text\": \"\xFF\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused("{\"more\": " + std::string(100, '[') + std::string(100, ']') + ", \"text\": \"a\"}"),
              HasSubstr("deeper"));
}

// R86 of the reports: values that many programs write but JSON does not allow are harmless outside the field.
TEST(Corpus, KeepsDocumentsNextToInvalidJsonValues) {
  const TestDirectory directory;
  write(directory / "a.jsonl",
        "{\"score\": NaN, \"text\": \"one\"}\n"
        "{\"text\": \"two\", \"range\": [-Infinity, Infinity, {\"NaN\": \"NaN\"}]}\n"
        "{\"title\": \"\\ud83d\", \"text\": \"three \\ud83d\\ude00\"}\n"
        "{\"text\": \"four \\\\ud83d\", \"t\": [\"\\udE00\\uD83D\"], \"\\ud800\": NaN}\n");
  EXPECT_THAT(documents(Corpus::read({directory / "a.jsonl"}, fraction(0))),
              ElementsAre("one", "two", "three \U0001F600", "four \\ud83d"));
  const auto refused = [&](const std::string& line) -> std::string {
    write(directory / "b.jsonl", "{\"text\": \"fine\"}\n\n" + line + "\n");
    try {
      documents(Corpus::read({directory / "b.jsonl"}, fraction(0)));
    } catch (const FileError& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_THAT(refused("{\"text\": \"a\\ud83d\"}"), HasSubstr("b.jsonl: at byte 18: line 3: the field 'text' has half"));
  EXPECT_THAT(refused("{\"text\": NaN}"), HasSubstr("line 3: expected the field 'text' to be a string"));
  EXPECT_THAT(refused("{\"x\": NaNs, \"text\": \"a\"}"), HasSubstr("line 3: the line is not valid JSON"));
  EXPECT_THAT(refused("{\"x\": 1NaN, \"text\": \"a\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused("{\"x\": \"\\ud83d, \"text\": \"a\"}"), HasSubstr("not valid JSON"));
}

TEST(Corpus, SkipsBadLinesAndCountsThemOnce) {
  const TestDirectory directory;
  std::string lines;
  Texts good;
  for (int i = 0; i < 4000; ++i) {
    good.push_back(std::to_string(i) + std::string(200, 'x'));
    lines += "{\"text\": \"" + good.back() + "\"}\n";
    if (i % 1000 == 10) lines += i == 10 ? "nonsense\n{\"body\": \"x\"}\n" : "[1]\n";
  }
  write(directory / "a.jsonl", lines);
  CorpusOptions options = fraction(0.25);
  options.skip_bad_lines = true;
  const Corpus corpus = Corpus::read({directory / "a.jsonl"}, options);
  EXPECT_EQ(corpus.bad_lines(), 0);
  for (int time = 0; time < 2; ++time) {
    Texts found = training(corpus);
    const Texts rest = validation(corpus);
    found.insert(found.end(), rest.begin(), rest.end());
    EXPECT_EQ(found, good);
    EXPECT_EQ(corpus.bad_lines(), 5);
    EXPECT_THAT(corpus.first_bad_line(), HasSubstr("a.jsonl: at byte"));
    EXPECT_THAT(corpus.first_bad_line(), HasSubstr("line 12: the line is not valid JSON"));
  }
}

// R84 of the reports. Documents and the split do not depend on how the file is read.
TEST(Corpus, SplitsATextAtItsSeparators) {
  const TestDirectory directory;
  CorpusOptions options = fraction(0);
  options.document_separator = "<|endoftext|>";
  write(directory / "a.txt", "<|endoftext|>one\n<|endoftext|>\ntwo\nlines<|endoftext|>\r\n<|endoftext|>three <|endof");
  EXPECT_THAT(documents(Corpus::read({directory / "a.txt"}, options)),
              ElementsAre("one\n", "two\nlines", "three <|endof"));
  for (const std::string separator : {"<|endoftext|>", "\n---\n", "\n\n"}) {
    std::string text;
    Texts all;
    for (int i = 0; i < 3000; ++i) {
      all.push_back("document " + std::to_string(i) + "\nof " + std::string(static_cast<std::size_t>(i % 900), 'x') +
                    "\nend");
      text += all.back() + separator + (separator[0] == '<' && i % 3 == 0 ? "\n" : "");
    }
    write(directory / "b.txt", text);
    options.document_separator = separator;
    options.validation_fraction = 0.3;
    const Corpus corpus = Corpus::read({directory / "b.txt"}, options);
    EXPECT_EQ(documents(corpus), all);
    Texts parts = training(corpus);
    EXPECT_GT(parts.size(), 2000u);
    EXPECT_LT(parts.size(), 2300u);
    const Texts rest = validation(corpus);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, all);
  }
}

// S5 of the reports.
TEST(Corpus, NamesUnsupportedFileTypes) {
  const TestDirectory directory;
  using namespace std::string_literals;
  const auto refused = [&](const std::string& name, const std::string& content) -> std::string {
    write(directory / name, content);
    try {
      Corpus::read({directory / name});
    } catch (const FileError& error) {
      return error.what();
    }
    return "taken";
  };
  const std::string utf16 = "a\0 \0t\0e\0x\0t\0\n\0"s;
  for (const std::string& content : {"\xFF\xFE"s + utf16, "\xFE\xFF\0a\0b"s, utf16, "\0"s + utf16.substr(0, 13)})
    for (const char* name : {"a.txt", "a.jsonl"})
      EXPECT_THAT(refused(name, content), HasSubstr(": is UTF-16 text; convert it to UTF-8 (iconv")) << name;
  EXPECT_THAT(refused("b", "PAR1\x15\0"s), HasSubstr("is a Parquet file"));
  EXPECT_THAT(refused("b.parquet", "anything"), HasSubstr("is a Parquet file"));
  EXPECT_THAT(refused("c", "\x1F\x8B\x08 packed"), HasSubstr("compressed"));
  EXPECT_THAT(refused("d.jsonl", "PK\x03\x04 packed"), HasSubstr("compressed"));
  EXPECT_EQ(refused("e", "PK and PAR are words"), "taken");
}

TEST(Corpus, ReadsTheTextInChunksOfWholeLines) {
  std::string text;
  for (int i = 0; text.size() < 1'500'000; ++i) text += "line " + std::to_string(i) + (i % 3 ? "\n" : "\n\n  ");
  const Corpus corpus = Corpus::from_text(text, 0);
  std::string joined;
  int stretches = 0;
  corpus.read_text(CorpusPart::all, [&](std::string_view stretch, bool begins) {
    EXPECT_EQ(begins, joined.empty());
    joined += stretch;
    ++stretches;
    if (joined.size() < text.size()) {
      EXPECT_EQ(joined.back(), '\n');
      EXPECT_NE(joined[joined.size() - 2], '\n');
      EXPECT_EQ(text[joined.size()], 'l');
    }
    return true;
  });
  EXPECT_EQ(joined, text);
  EXPECT_GT(stretches, 4);
  EXPECT_LT(stretches, 8);
}

TEST(Corpus, SplitsEndlessLinesAfterACharacter) {
  std::string text;
  while (text.size() < 20'000'000) text += "\xE6\xAD\xAA";
  std::string joined;
  Corpus::from_text(text, 0).read_text(CorpusPart::all, [&](std::string_view stretch, bool) {
    EXPECT_LE(stretch.size(), 16u << 20);
    EXPECT_EQ(stretch.size() % 3, 0u);
    joined += stretch;
    return joined.size() < 15'000'000;  // and stops when told to
  });
  EXPECT_LT(joined.size(), text.size());
  EXPECT_EQ(joined, text.substr(0, joined.size()));
}

TEST(Corpus, NamesTheFileInErrors) {
  const TestDirectory directory;
  write(directory / "empty", "");
  write(directory / "books.zst", "(/\xB5/");
  std::filesystem::create_directory(directory / "none");
  EXPECT_THAT([&] { Corpus::read({directory / "missing"}); }, ThrowsMessage<FileError>(HasSubstr("missing: ")));
  EXPECT_THAT([&] { Corpus::read({directory / "empty"}); }, ThrowsMessage<FileError>(HasSubstr("empty: ")));
  EXPECT_THAT([&] { Corpus::read({directory / "books.zst"}); }, ThrowsMessage<FileError>(HasSubstr("compressed")));
  EXPECT_THAT([&] { Corpus::read({directory / "none"}); }, ThrowsMessage<FileError>(HasSubstr("none: ")));
  EXPECT_THROW(Corpus::read({}), std::invalid_argument);
  write(directory / "shrinks", "some text");
  const Corpus corpus = Corpus::read({directory / "shrinks"}, fraction(0));
  std::filesystem::resize_file(directory / "shrinks", 4);
  EXPECT_THAT([&] { documents(corpus); }, ThrowsMessage<FileError>(HasSubstr("truncated")));
}

TEST(TrainBpe, MatchesTrainingOnTheWholeText) {
  std::string text;
  for (int i = 0; text.size() < 700'000; i = (i * 5 + 3) % 9973)
    text += "word" + std::to_string(i % 400) + (i % 7 ? " " : ".\n");
  const Tokenizer whole = Tokenizer::train_bpe(text, 500, {});
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    std::int64_t bytes = 0, tokens = 0;
    BpeProgress progress;
    progress.on_text = [&](std::int64_t done, std::int64_t) { bytes = done; };
    progress.on_token = [&](std::int64_t done, std::int64_t) { tokens = done; };
    EXPECT_EQ(train_bpe(Corpus::from_text(text, 0), 500, progress).json(), whole.json());
    EXPECT_EQ(bytes, static_cast<std::int64_t>(text.size()));
    EXPECT_EQ(tokens, whole.size());
  }
  set_num_threads(0);
}

}  // namespace
}  // namespace qkv
