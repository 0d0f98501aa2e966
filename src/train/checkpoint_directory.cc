// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint_directory.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <span>

#include "core/parallel.h"
#include "formats/model_directory.h"
#include "formats/strict_json.h"
#include "os/atomic_directory.h"
#include "os/atomic_file.h"
#include "os/mapped_file.h"
#include "qkv/error.h"
#include "train/checksum.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kFormat[] = "qkv-checkpoint";
constexpr std::int64_t kVersion = 1;
constexpr std::size_t kLargestList = 1 << 20;  // bytes
constexpr std::size_t kDigits = 6;             // minimum digits of a step in a name

std::string list_path(const std::string& checkpoint) { return checkpoint + "/checkpoint.json"; }

std::string hexadecimal(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15u];
  return text;
}

std::uint64_t checksum_of(const std::string& text) {
  Checksum checksum;
  checksum.add(text.data(), text.size());
  return checksum.value();
}

// The step in "step-000250"; std::nullopt for any other name.
std::optional<std::int64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0 || fs::path(checkpoint_path("", step)).filename() != name)
    return std::nullopt;
  return step;
}

}  // namespace

std::string base_path(const std::string& directory) { return directory + "/base"; }

std::string base_name(const std::string& file) { return "../../base/" + file; }

std::string checkpoint_path(const std::string& directory, std::int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return directory + "/checkpoints/step-" + digits;
}

std::vector<std::int64_t> checkpoint_steps(const std::string& directory) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(directory + "/checkpoints", error), end; !error && entry != end;
       entry.increment(error)) {
    if (const auto step = step_of(entry->path().filename().string())) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

FileFacts facts_of_file(const std::string& path) {
  const MappedFile file(path);
  Checksum checksum;
  checksum.add(file.data(), file.size());
  return {static_cast<std::int64_t>(file.size()), checksum.value()};
}

void write_checkpoint_list(const std::string& checkpoint, const CheckpointList& list) {
  json files = json::object();
  for (const auto& [name, facts] : list.files)
    files[name] = {{"bytes", facts.bytes}, {"xxh3", hexadecimal(facts.checksum)}};
  json all = {{"format", kFormat}, {"version", kVersion}, {"state", json::parse(list.state)}, {"files", files}};
  all["checksum"] = hexadecimal(checksum_of(all.dump()));
  replace_file(list_path(checkpoint), all.dump() + "\n");
}

CheckpointList read_checkpoint_list(const std::string& checkpoint) {
  const std::string path = list_path(checkpoint);
  json all = load_json(path, kLargestList);
  const JsonPlace place(path, all);
  if (place.at("format").string() != kFormat) place.at("format").fail(std::string("expected '") + kFormat + "'");
  place.at("version").integer(kVersion, kVersion);
  const std::string written = place.at("checksum").string();
  all.erase("checksum");
  if (hexadecimal(checksum_of(all.dump())) != written) throw FileError(path, "checksum mismatch: the file is damaged");
  CheckpointList list;
  list.state = place.at("state").object().dump();
  for (const auto& [name, entry] : place.at("files").object().items()) {
    const JsonPlace file(path, entry, "'" + name + "'");
    FileFacts facts;
    facts.bytes = file.at("bytes").integer(0, INT64_MAX);
    const std::string& digits = file.at("xxh3").string();
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), facts.checksum, 16);
    if (error != std::errc() || stop != digits.data() + digits.size()) file.fail("expected a checksum in hexadecimal");
    list.files.emplace(name, facts);
  }
  return list;
}

void verify_checkpoint_files(const std::string& checkpoint, const CheckpointList& list) {
  std::vector<std::pair<std::string, FileFacts>> files(list.files.begin(), list.files.end());
  std::vector<std::string> faults(files.size());
  parallel_for(static_cast<std::int64_t>(files.size()), [&](std::int64_t i) {
    const auto& [name, wanted] = files[static_cast<std::size_t>(i)];
    std::string& fault = faults[static_cast<std::size_t>(i)];
    try {
      const MappedFile file(checkpoint + "/" + name);
      if (static_cast<std::int64_t>(file.size()) != wanted.bytes) {
        fault = "expected " + std::to_string(wanted.bytes) + " bytes; found " + std::to_string(file.size());
        return;
      }
      Checksum checksum;
      checksum.add(file.data(), file.size());
      if (checksum.value() != wanted.checksum) fault = "checksum mismatch: the file is damaged";
    } catch (const FileError& error) {
      fault = std::string(error.what()).substr(error.path().size() + 2);
    }
  });
  for (std::size_t i = 0; i < files.size(); ++i)
    if (!faults[i].empty()) throw FileError(checkpoint + "/" + files[i].first, faults[i]);
}

void publish_checkpoint(const std::string& checkpoint, const std::string& to) {
  make_directories(to);
  const bool adapters = fs::exists(checkpoint + "/" + kAdapterFiles[0]);
  const std::span<const char* const> names =
      adapters ? std::span<const char* const>(kAdapterFiles) : std::span<const char* const>(kModelFiles);
  for (const char* name : names) link_file(checkpoint + "/" + name, to + "/" + name);
  for (const char* name : kTextFactFiles) {
    std::error_code ignored;
    if (fs::exists(checkpoint + "/" + name))
      link_file(checkpoint + "/" + name, to + "/" + name);
    else
      fs::remove(to + "/" + name, ignored);
  }
  sync_directory(to);
}

void remove_old_checkpoints(const std::string& directory, std::int64_t former, std::int64_t step, std::int64_t keep) {
  std::int64_t kept = 0;
  for (const std::int64_t found : checkpoint_steps(directory)) {
    const bool refused = former >= 0 && former < found && found < step;
    if (found <= step && (refused || ++kept > keep)) remove_all(checkpoint_path(directory, found));
  }
}

}  // namespace qkv
