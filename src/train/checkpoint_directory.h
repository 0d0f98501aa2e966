// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run on disk: complete directories DIR/checkpoints/step-000250, each with a list of its files
// (docs/formats.md, "A checkpoint").
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace qkv {

// Directory of the base model of a run's adapters, and the name of its file in a checkpoint's list.
std::string base_path(const std::string& directory);
std::string base_name(const std::string& file);
std::string checkpoint_path(const std::string& directory, std::int64_t step);
// The steps of the checkpoints in a run's directory, newest first; empty if there is no such directory.
std::vector<std::int64_t> checkpoint_steps(const std::string& directory);

struct FileFacts {
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  // XXH3 of the whole file
};
FileFacts facts_of_file(const std::string& path);  // reads it; throws qkv::FileError

// checkpoint.json: the state of the run and the list of the other files.
struct CheckpointList {
  std::string state;                       // JSON of train/run_state.h
  std::map<std::string, FileFacts> files;  // by name
};
// Throw qkv::FileError. Reading checks the list's own checksum, but not the files.
void write_checkpoint_list(const std::string& checkpoint, const CheckpointList& list);
CheckpointList read_checkpoint_list(const std::string& checkpoint);
// Checks size and checksum of every file; throws qkv::FileError for the first mismatch.
void verify_checkpoint_files(const std::string& checkpoint, const CheckpointList& list);

// Publishes the model files of a checkpoint, or its adapters, in directory `to`: as hard links, not copies.
void publish_checkpoint(const std::string& checkpoint, const std::string& to);
// Removes the oldest checkpoints up to `step` until `keep` are left, and all between `former` (-1: none) and `step`,
// which were invalid when the run resumed from `former`.
void remove_old_checkpoints(const std::string& directory, std::int64_t former, std::int64_t step, std::int64_t keep);

}  // namespace qkv
