// SPDX-License-Identifier: Apache-2.0
#include "chat_history.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "output.h"
#include "qkv/error.h"
#include "qkv/text_file.h"

namespace qkv::cli {
namespace {

constexpr std::size_t kLines = 1000, kBytes = 256 << 10, kLineBytes = 8 << 10;

// While it exists, new files and directories are accessible only to their owner.
class OwnerOnly {
 public:
  OwnerOnly() : former_(umask(077)) {}
  ~OwnerOnly() { umask(former_); }
  OwnerOnly(const OwnerOnly&) = delete;
  OwnerOnly& operator=(const OwnerOnly&) = delete;

 private:
  mode_t former_;
};

// The newest lines within the limits.
std::vector<std::string> bounded(std::vector<std::string> lines) {
  std::erase_if(lines, [](const std::string& line) { return line.empty() || line.size() > kLineBytes; });
  std::size_t first = lines.size(), bytes = 0;
  while (first > 0 && lines.size() - first < kLines && bytes + lines[first - 1].size() + 1 <= kBytes)
    bytes += lines[--first].size() + 1;
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(first));
  return lines;
}

std::string history_path() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::string(state) + "/qkv/chat_history";  // a relative path is invalid
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? std::string(home) + "/.local/state/qkv/chat_history" : "";
}

std::vector<std::string> read_history(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return {};
  if (!std::filesystem::is_regular_file(status))
    throw qkv::FileError(path, error ? "cannot be opened: " + error.message() : "is not a regular file");
  std::ifstream file(path, std::ios::binary);
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  std::string line;
  if (!error && size > kBytes) {  // not written by qkv; use its last lines
    file.seekg(static_cast<std::streamoff>(size - kBytes));
    std::getline(file, line);
  }
  std::vector<std::string> lines;
  while (std::getline(file, line)) lines.push_back(line);
  if (error || !file.eof()) throw qkv::FileError(path, "cannot be read");
  return bounded(std::move(lines));
}

void add_to_history(const std::string& path, const std::string& line) {
  const OwnerOnly owner_only;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) throw qkv::FileError(path, "cannot be written: " + error.message());
  std::vector<std::string> lines = read_history(path);
  if (!lines.empty() && lines.back() == line) return;
  lines.push_back(line);
  std::string text;
  for (const std::string& kept : bounded(std::move(lines))) text += kept + "\n";
  if (std::filesystem::exists(path, error)) {
    using std::filesystem::perms;
    std::filesystem::permissions(path, perms::owner_read | perms::owner_write, error);
    if (error) throw qkv::FileError(path, "cannot be made private: " + error.message());
  }
  qkv::save_text(path, text);
}

}  // namespace

ChatHistory::ChatHistory(bool kept) {
  if (!kept) return;
  path_ = history_path();
  if (path_.empty()) {
    give_up("neither XDG_STATE_HOME nor HOME is set");
    return;
  }
  try {
    lines_ = read_history(path_);
  } catch (const qkv::FileError& error) {
    give_up(error.what());
  }
}

void ChatHistory::add(const std::string& line) {
  if (path_.empty()) return;
  try {
    add_to_history(path_, line);
  } catch (const qkv::FileError& error) {
    give_up(error.what());
  }
}

void ChatHistory::give_up(const std::string& reason) {
  path_.clear();
  print_error("no history: " + reason + "\n");
}

}  // namespace qkv::cli
