// SPDX-License-Identifier: Apache-2.0
// Saves a trace as .npy files with TransformerLens names.
#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "inspect/recorded.h"
#include "qkv/array_file.h"
#include "qkv/error.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

// The same elements with a leading batch axis of 1.
ConstView with_batch(const Tensor& tensor) {
  ConstView view = tensor.view();
  std::array<std::int64_t, kMaxRank> sizes{1};
  std::copy(view.shape.begin(), view.shape.end(), sizes.begin() + 1);
  view.shape = Dims(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(tensor.shape().rank() + 1)));
  view.strides = contiguous_strides(view.shape);
  return view;
}

void save(const std::string& directory, const std::string& name, const Tensor& tensor) {
  save_npy(directory + "/" + name + ".npy", with_batch(tensor));
}

}  // namespace

TraceSaver::TraceSaver(std::string directory) : directory_(std::move(directory)) {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) throw FileError(directory_, "cannot be created: " + error.message());
}

bool TraceSaver::wants(TraceSite site, std::int64_t) const {
  return site != TraceSite::products && site != TraceSite::scaled;
}

void TraceSaver::visit(const Traced& traced) {
  save(directory_, hook_name(traced.site, traced.layer), recorded(traced.values));
  ++files;
}

void TraceSaver::save_ends(std::span<const std::int32_t> tokens, const Tensor& logits) {
  Tensor ids(Dims{static_cast<std::int64_t>(tokens.size())}, DType::i64);
  std::copy(tokens.begin(), tokens.end(), ids.data<std::int64_t>());
  save(directory_, "tokens", ids);
  save(directory_, "logits", logits);
  files += 2;
}

std::int64_t save_trace(const std::string& directory, const Trace& trace) {
  TraceSaver saver(directory);
  const auto show = [&](TraceSite site, std::int64_t layer, const Tensor& tensor) {
    if (tensor.size() > 0 && saver.wants(site, layer)) saver.visit({site, layer, with_batch(tensor), {}});
  };
  for (int i = 0; i < kTraceSites; ++i) {
    const auto site = static_cast<TraceSite>(i);
    if (i >= kLayerSites) show(site, -1, trace.around.at(site));
    for (std::size_t l = 0; i < kLayerSites && l < trace.layers.size(); ++l)
      show(site, static_cast<std::int64_t>(l), trace.layers[l].at(site));
  }
  saver.save_ends(trace.tokens, trace.logits);
  return saver.files;
}

}  // namespace qkv
