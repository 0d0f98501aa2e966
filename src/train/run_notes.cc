// SPDX-License-Identifier: Apache-2.0
#include "train/run_notes.h"

#include <filesystem>
#include <limits>

#include "formats/strict_json.h"
#include "os/atomic_file.h"

namespace qkv {
namespace {

constexpr std::size_t kLargestFile = std::size_t{4} << 20;
constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMaxStarts = 1000;  // older ones are dropped
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

RunFacts read_facts(const JsonPlace& place) {
  RunFacts facts;
  facts.title = place.at("title").string();
  for (const JsonPlace& row : place.at("rows").list()) {
    const std::vector<JsonPlace> pair = row.list();
    if (pair.size() != 2) row.fail("expected a name and a value; found " + std::to_string(pair.size()) + " members");
    facts.rows.emplace_back(pair[0].string(), pair[1].string());
  }
  return facts;
}

RunStart read_start(const JsonPlace& place) {
  RunStart start;
  start.step = place.at("step").integer(0, kMax);
  start.time = place.at("time").integer(0, kMax);
  if (place.has("end")) start.end = place.at("end").string();
  if (place.has("message")) start.message = place.at("message").string();
  if (!start.end.empty() && start.end != "finished" && start.end != "stopped" && start.end != "failed") {
    place.at("end").fail("expected finished, stopped or failed; found '" + start.end + "'");
  }
  return start;
}

}  // namespace

RunNotes read_run_notes(const std::string& path) {
  RunNotes notes;
  if (!std::filesystem::exists(path)) return notes;
  const nlohmann::json json = load_json(path, kLargestFile);
  const JsonPlace all(path, json);
  all.at("qkv_format").integer(kVersion, kVersion);
  notes.steps = all.at("steps").integer(0, kMax);
  for (const JsonPlace& facts : all.at("facts").list()) notes.facts.push_back(read_facts(facts));
  for (const JsonPlace& start : all.at("starts").list()) notes.starts.push_back(read_start(start));
  return notes;
}

void write_run_notes(const std::string& path, const RunNotes& notes) {
  using Json = nlohmann::ordered_json;
  Json json = {{"qkv_format", kVersion}, {"steps", notes.steps}, {"facts", Json::array()}, {"starts", Json::array()}};
  for (const RunFacts& facts : notes.facts) {
    Json rows = Json::array();
    for (const auto& [name, value] : facts.rows) rows.push_back({name, value});
    json["facts"].push_back({{"title", facts.title}, {"rows", rows}});
  }
  const std::size_t forgotten = notes.starts.size() > kMaxStarts ? notes.starts.size() - kMaxStarts : 0;
  for (std::size_t i = forgotten; i < notes.starts.size(); ++i) {
    const RunStart& start = notes.starts[i];
    Json one = {{"step", start.step}, {"time", start.time}};
    if (!start.end.empty()) one["end"] = start.end;
    if (!start.message.empty()) one["message"] = start.message;
    json["starts"].push_back(std::move(one));
  }
  replace_file(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace qkv
