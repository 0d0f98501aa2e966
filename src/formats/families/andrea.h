// SPDX-License-Identifier: Apache-2.0
// Parameter offsets in an ANDREA checkpoint, and the two JSON files next to it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/model_source.h"
#include "qkv/andrea.h"

namespace qkv {

inline constexpr std::size_t kAndreaHeader = 8;  // bytes: i32 step, i32 n_params

struct AndreaPlace {
  std::size_t parameter;    // index into infos
  std::int64_t first;       // first element in the file's weights (or moments)
  bool transposed = false;  // stored [out, in]
};
// In file order. Throws std::invalid_argument unless the order names each parameter exactly once.
std::vector<AndreaPlace> andrea_places(const AndreaLayout& layout, const std::vector<ParameterInfo>& infos);

// View of a parameter, [in, out] or [size], in the file's weights (or moments) at `elements`.
ConstView andrea_view(const AndreaPlace& place, const ParameterInfo& info, const std::byte* elements);

std::vector<std::string> read_harris_segments(const std::string& path);
// Reads andrea.json, written by save_andrea.
AndreaLayout read_andrea_json(const std::string& path);
void write_andrea_json(const std::string& path, const AndreaLayout& layout);

std::string sibling(const std::string& path, const char* name);  // a file in the same directory

// The layout for reading a checkpoint of n_params parameters: see load_andrea().
AndreaLayout choose_andrea_layout(const std::string& path, const std::optional<AndreaLayout>& given,
                                  std::int64_t segments, std::int64_t n_params);

std::unique_ptr<ModelSource> open_andrea(const std::string& path, const std::optional<AndreaLayout>& layout = {});

}  // namespace qkv
