// SPDX-License-Identifier: Apache-2.0
#include "line_reader.h"

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "output.h"
#include "qkv/error.h"

#ifdef QKV_LIBEDIT
#include <histedit.h>
#endif

namespace qkv::cli {

#ifdef QKV_LIBEDIT

namespace {

// A terminal without cursor movement uses the kernel's line discipline.
bool terminal_edits() {
  const char* const name = std::getenv("TERM");
  return input_is_terminal() && output_is_terminal() && name != nullptr && *name != '\0' &&
         std::strcmp(name, "dumb") != 0;
}

// Model text is UTF-8 in any locale, so the terminal input must be too.
void read_utf8() {
  for (const char* name : {"C.UTF-8", "en_US.UTF-8", ""})
    if (std::setlocale(LC_CTYPE, name) != nullptr) return;
}

bool is_whole_text(const std::string& line) { return std::mbstowcs(nullptr, line.c_str(), 0) != std::size_t(-1); }

char* prompt_of(EditLine* editor) {
  void* prompt = nullptr;
  el_get(editor, EL_CLIENTDATA, &prompt);
  return static_cast<char*>(prompt);
}

}  // namespace

bool has_line_editing() noexcept { return true; }

struct LineReader::Editor {
  explicit Editor(const char* prompt) {
    read_utf8();
    edit = el_init("qkv", stdin, stdout, stderr);
    history = history_init();
    if (edit == nullptr || history == nullptr) throw std::bad_alloc();
    el_set(edit, EL_CLIENTDATA, const_cast<char*>(prompt));
    el_set(edit, EL_PROMPT, prompt_of);
    el_set(edit, EL_SIGNAL, 1);  // restores the terminal when a signal stops or ends the process
    el_set(edit, EL_EDITOR, "emacs");
    constexpr const char* kKeys[][2] = {
        {"\t", "ed-insert"},           {"^W", "ed-delete-prev-word"}, {"\033[3~", "ed-delete-next-char"},
        {"\033[H", "ed-move-to-beg"},  {"\033[1~", "ed-move-to-beg"}, {"\033[F", "ed-move-to-end"},
        {"\033[4~", "ed-move-to-end"}, {"\033[1;5D", "ed-prev-word"}, {"\033[1;5C", "em-next-word"}};
    for (const auto& [key, command] : kKeys) el_set(edit, EL_BIND, key, command, nullptr);
    el_set(edit, EL_HIST, ::history, history);
    HistEvent event;
    ::history(history, &event, H_SETSIZE, 1000);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_source(edit, nullptr);  // key bindings from ~/.editrc
  }
  ~Editor() {
    if (history != nullptr) history_end(history);
    if (edit != nullptr) el_end(edit);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  void remember(const std::string& line) const {
    HistEvent event;
    if (is_whole_text(line)) ::history(history, &event, H_ENTER, line.c_str());
  }

  std::optional<std::string> next() const {
    int count = 0;
    const char* const line = el_gets(edit, &count);
    std::fflush(stdout);
    if (line == nullptr && count < 0)
      throw qkv::FileError("standard input", std::string("cannot be read: ") + std::strerror(errno));
    if (line == nullptr || count == 0) return std::nullopt;
    return std::string(line);
  }

  EditLine* edit = nullptr;
  History* history = nullptr;
};

LineReader::LineReader(const char* prompt) : prompt_(prompt) {
  if (terminal_edits()) editor_ = std::make_unique<Editor>(prompt);
}

void LineReader::remember(const std::string& line) {
  if (editor_) editor_->remember(line);
}

#else

bool has_line_editing() noexcept { return false; }
struct LineReader::Editor {
  std::optional<std::string> next() const { return std::nullopt; }
};
LineReader::LineReader(const char* prompt) : prompt_(prompt) {}
void LineReader::remember(const std::string&) {}

#endif

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::next() {
  std::optional<std::string> line;
  if (editor_) {
    line = editor_->next();
  } else {
    if (input_is_terminal()) print(prompt_);
    std::string text;
    if (std::getline(std::cin, text)) line = std::move(text);
    if (std::cin.bad()) throw qkv::FileError("standard input", "cannot be read");
  }
  while (line && (line->ends_with('\n') || line->ends_with('\r'))) line->pop_back();
  return line;
}

}  // namespace qkv::cli
