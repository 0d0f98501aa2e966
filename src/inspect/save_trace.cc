// SPDX-License-Identifier: Apache-2.0
// A trace as .npy files that tools which know TransformerLens' names can read.
#include <algorithm>
#include <array>
#include <filesystem>

#include "qkv/array_file.h"
#include "qkv/error.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

// The same elements with a batch axis of 1 in front.
ConstView with_batch(const Tensor& tensor) {
  ConstView view = tensor.view();
  std::array<std::int64_t, kMaxRank> sizes{1};
  std::copy(view.shape.begin(), view.shape.end(), sizes.begin() + 1);
  view.shape = Dims(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(tensor.shape().rank() + 1)));
  view.strides = contiguous_strides(view.shape);
  return view;
}

}  // namespace

std::int64_t save_trace(const std::string& directory, const Trace& trace) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw FileError(directory, "cannot be made: " + error.message());
  std::int64_t files = 0;
  const auto save = [&](const std::string& name, const Tensor& tensor) {
    if (tensor.size() == 0) return;
    save_npy(directory + "/" + name + ".npy", with_batch(tensor));
    ++files;
  };
  for (std::size_t l = 0; l < trace.layers.size(); ++l)
    for (int i = 0; i < kTraceSites; ++i) {
      const auto site = static_cast<TraceSite>(i);
      if (site == TraceSite::products || site == TraceSite::scaled) continue;
      save(hook_name(site, static_cast<std::int64_t>(l)), trace.layers[l].at(site));
    }
  Tensor tokens(Dims{trace.ctx()}, DType::i64);
  std::copy(trace.tokens.begin(), trace.tokens.end(), tokens.data<std::int64_t>());
  save("tokens", tokens);
  save("logits", trace.logits);
  return files;
}

}  // namespace qkv
