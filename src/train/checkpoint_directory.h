// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run on the disk: directories DIR/checkpoints/step-000250, each whole and with a list of its
// files (docs/formats.md, "A checkpoint").
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace qkv {

// The model that a run's adapters belong to, and the name of its file in a checkpoint's list.
std::string base_path(const std::string& directory);
std::string base_name(const std::string& file);
std::string checkpoint_path(const std::string& directory, std::int64_t step);
// The steps of the checkpoints in a run's directory, the newest first; none where there is no such directory.
std::vector<std::int64_t> checkpoint_steps(const std::string& directory);

struct FileFacts {
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  // XXH3 of the whole file
};
FileFacts facts_of_file(const std::string& path);  // reads it; throws qkv::FileError

// checkpoint.json: where the run stands, and what the other files are.
struct CheckpointList {
  std::string state;                       // JSON of train/run_state.h
  std::map<std::string, FileFacts> files;  // by name
};
// Throw qkv::FileError. Reading checks the list's own checksum, but not the files.
void write_checkpoint_list(const std::string& checkpoint, const CheckpointList& list);
CheckpointList read_checkpoint_list(const std::string& checkpoint);
// Every file has the size and the checksum of the list, or qkv::FileError names the one that has not.
void verify_checkpoint_files(const std::string& checkpoint, const CheckpointList& list);

// Makes the model files of a checkpoint, or its adapters, those of `to`, a directory to pass on: under a second name,
// not as a copy.
void publish_checkpoint(const std::string& checkpoint, const std::string& to);
// Removes the oldest of the checkpoints up to `step` until `keep` of them are left, and all between `former` (-1: none)
// and `step`: the run that went from one to the other has refused them.
void remove_old_checkpoints(const std::string& directory, std::int64_t former, std::int64_t step, std::int64_t keep);

}  // namespace qkv
