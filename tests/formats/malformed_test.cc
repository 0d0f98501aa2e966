// SPDX-License-Identifier: Apache-2.0
// A collection of malformed files outside this repository: QKV_CASES_DIR is its folder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/scratch.h"
#include "formats/tensor_files.h"
#include "qkv/error.h"

namespace qkv {
namespace {

// Run by `ctest -R formats_cases` if the folder exists.
std::string cases_folder() {
  const char* folder = std::getenv("QKV_CASES_DIR");
  if (!folder) throw std::runtime_error("QKV_CASES_DIR expected a folder of cases; found nothing");
  return folder;
}

TEST(MalformedFiles, Safetensors) {
  const std::string folder = cases_folder() + "/malformed/";
  int count = 0;
  for (const auto& item : nlohmann::json::parse(read_all(folder + "index.json"))) {
    if (item["format"] != "safetensors" || item["layer"] != "container") continue;
    const std::string name = item["file"], expect = item["expect"];
    if (!name.ends_with(".safetensors")) continue;
    ++count;
    bool accepted = false;
    std::string reason;
    try {
      const SafetensorsFile file(folder + name);
      for (const auto& entry : file.tensors()) {
        volatile unsigned char last = 0;  // every byte of every tensor can be read
        for (std::size_t i = 0; i < entry.bytes; ++i) last = static_cast<unsigned char>(entry.data[i]);
        static_cast<void>(last);
      }
      accepted = true;
    } catch (const FileError& error) {
      reason = error.what();
    }
    if (expect == "reject") {
      EXPECT_FALSE(accepted) << name << ": " << item["reason"];
    }
    if (expect == "accept") {
      EXPECT_TRUE(accepted) << name << ": " << reason;
    }
  }
  EXPECT_GT(count, 40);
  std::cout << count << " safetensors files of " << folder << " behave as expected\n";
}

TEST(MalformedFiles, Gguf) {
  const std::string folder = cases_folder() + "/malformed/";
  int count = 0;
  for (const auto& item : nlohmann::json::parse(read_all(folder + "index.json"))) {
    const std::string name = item["file"], expect = item["expect"];
    if (!name.ends_with(".gguf") || item["layer"] != "container") continue;
    ++count;
    bool accepted = false;
    std::string reason;
    try {
      const GgufFile file(folder + name);
      unsigned sum = 0;  // every byte of every tensor can be read
      for (const GgufTensor& tensor : file->tensors())
        for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
      accepted = sum < 1u << 31;
    } catch (const FileError& error) {
      reason = error.what();
      EXPECT_EQ(error.path(), folder + name);
      EXPECT_GE(error.offset(), 0) << reason;
    }
    if (expect == "reject") {
      EXPECT_FALSE(accepted) << name << ": " << item["reason"];
    }
    if (expect == "accept") {
      EXPECT_TRUE(accepted) << name << ": " << reason;
    }
  }
  EXPECT_GT(count, 40);
  std::cout << count << " GGUF files of " << folder << " behave as expected\n";
}

TEST(MalformedFiles, Sharded) {
  const std::string folder = cases_folder() + "/malformed/";
  int count = 0;
  for (const auto& item : nlohmann::json::parse(read_all(folder + "index.json"))) {
    if (item["format"] != "sharded") continue;
    ++count;
    const std::string name = item["file"];
    std::string reason;
    try {
      const TensorFiles files = TensorFiles::open_index(folder + name);
      for (const auto& [tensor, wanted] : item["tensors"].items()) {
        const ConstView found = files.find(tensor);
        ASSERT_TRUE(found) << tensor;
        std::vector<float> values(static_cast<std::size_t>(element_count(found.shape)));
        std::memcpy(values.data(), found.data, 4 * values.size());
        EXPECT_EQ(values, wanted["values"].get<std::vector<float>>());
      }
    } catch (const FileError& error) {
      reason = error.what();
    }
    EXPECT_EQ(reason.empty(), item["expect"] == "accept") << name << ": " << reason;
  }
  EXPECT_GE(count, 5);
  std::cout << count << " sharded models of " << folder << " behave as expected\n";
}

}  // namespace
}  // namespace qkv
