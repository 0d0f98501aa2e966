// SPDX-License-Identifier: Apache-2.0
#include "qkv/andrea.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/convert_elements.h"
#include "formats/elements.h"
#include "formats/families/andrea.h"
#include "formats/finite_parameters.h"
#include "os/atomic_file.h"
#include "os/mapped_file.h"
#include "qkv/error.h"
#include "text/harris_trainer.h"

namespace qkv {
namespace {

Tokenizer harris_tokenizer(const std::string& path, const std::vector<std::string>& segments, bool bytes_first) {
  try {
    return Tokenizer::from_data(harris_data(segments, bytes_first));
  } catch (const std::invalid_argument& error) {
    throw FileError(path, error.what());
  }
}

class AndreaSource final : public ModelSource {
 public:
  AndreaSource(const std::string& path, const std::optional<AndreaLayout>& given)
      : ModelSource(path, "ANDREA checkpoint"), file_(path), segments_(read_harris_segments(segments_path())) {
    std::int32_t header[2] = {};
    if (file_.size() < kAndreaHeader) throw FileError(path, 0, "the file ends inside its header of 8 bytes");
    std::memcpy(header, file_.data(), sizeof header);
    step_ = header[0];
    n_params_ = header[1];
    if (step_ < 0) throw FileError(path, 0, "the step must not be negative; found " + std::to_string(step_));
    if (n_params_ < 1) throw FileError(path, 4, "n_params must be above 0; found " + std::to_string(n_params_));
    const std::uint64_t wanted = kAndreaHeader + 12 * static_cast<std::uint64_t>(n_params_);
    if (file_.size() != wanted)
      throw FileError(path, 4,
                      std::to_string(n_params_) + " parameters with both moments need " + std::to_string(wanted) +
                          " bytes; the file has " + std::to_string(file_.size()));
    layout_ = choose_andrea_layout(path, given, static_cast<std::int64_t>(segments_.size()), n_params_);
    config_ = layout_.config;
    infos_ = parameter_infos(config_);
    places_.resize(infos_.size());
    for (const AndreaPlace& place : andrea_places(layout_, infos_)) places_[place.parameter] = place;
    for (const ParameterInfo& info : infos_)
      tensors_.push_back({info.name,
                          "F32",
                          {info.shape.begin(), info.shape.end()},
                          4 * static_cast<std::uint64_t>(element_count(info.shape))});
    facts_ = {{"step", std::to_string(step_)},
              {"order", layout_.order},
              {"matrices", layout_.out_in ? "[out, in]" : "[in, out]"},
              {"token ids", layout_.bytes_first ? "bytes, segments, end" : "segments, bytes, end"},
              {"segments", std::to_string(segments_.size())},
              {"tokenizer", "longest matching segment first, then bytes"}};
  }

  DType dtype() const override { return DType::f32; }
  void read(std::size_t i, View to) const override { read(0, i, to); }
  // part: 0 weights, 1 first moments, 2 second moments.
  void read(int part, std::size_t i, View to) const {
    const std::byte* elements = file_.data() + kAndreaHeader + 4 * part * n_params_;
    convert_elements(andrea_view(places_.at(i), infos_[i], elements), to);
  }
  Tokenizer tokenizer() const override { return harris_tokenizer(segments_path(), segments_, layout_.bytes_first); }
  std::vector<std::int32_t> end_tokens() const override { return {static_cast<std::int32_t>(config_.vocab_size) - 1}; }
  std::int64_t step() const { return step_; }
  const AndreaLayout& layout() const { return layout_; }

 private:
  std::string segments_path() const { return sibling(path_, "harris_segments.json"); }

  MappedFile file_;
  std::vector<std::string> segments_;
  std::int64_t step_ = 0, n_params_ = 0;
  AndreaLayout layout_;
  std::vector<AndreaPlace> places_;  // [i] as infos_[i]
};

// The segments of a Harris tokenizer whose id order matches the layout.
std::vector<std::string> segments_of(const Tokenizer& tokenizer, bool bytes_first) {
  const TokenizerData& data = tokenizer.data();
  const auto size = static_cast<std::ptrdiff_t>(data.tokens.size());
  if (data.longest_match && size >= 257) {
    const auto begin = data.tokens.begin() + (bytes_first ? 256 : 0);
    std::vector<std::string> segments(begin, begin + (size - 257));
    if (harris_data(segments, bytes_first).tokens == data.tokens) return segments;
  }
  throw std::invalid_argument("[andrea] expected a Harris tokenizer with ids for " +
                              std::string(bytes_first ? "bytes, segments" : "segments, bytes") +
                              " and an end token, in this order; found a different tokenizer");
}

void write_part(AtomicFile& file, const std::vector<AndreaPlace>& places, const std::vector<Tensor>& tensors) {
  for (const AndreaPlace& place : places) {
    const ConstView view = tensors[place.parameter].view();
    write_elements(file, place.transposed ? swap_axes(view, 0, 1) : view);
  }
}

void check_moments(const Model& model, const std::vector<Tensor>& moments) {
  bool fits = moments.size() == model.parameters().size();
  for (std::size_t i = 0; fits && i < moments.size(); ++i)
    fits = moments[i].shape() == model.infos()[i].shape && moments[i].dtype() == DType::f32;
  if (!fits) throw std::invalid_argument("[andrea] expected f32 moments with the shapes of the parameters");
}

}  // namespace

std::unique_ptr<ModelSource> open_andrea(const std::string& path, const std::optional<AndreaLayout>& layout) {
  return std::make_unique<AndreaSource>(path, layout);
}

Tokenizer load_harris_segments(const std::string& path, bool bytes_first) {
  return harris_tokenizer(path, read_harris_segments(path), bytes_first);
}

AndreaCheckpoint load_andrea(const std::string& path, const std::optional<AndreaLayout>& layout, bool with_moments) {
  const AndreaSource source(path, layout);
  AndreaCheckpoint result{source.step(), Model(source.config()), source.tokenizer(), {}, {}, source.layout()};
  const Model::ParameterAccess parameters = result.model.change_parameters();
  for (std::size_t i = 0; i < source.infos().size(); ++i) FiniteParameters(source).read(i, parameters[i].view());
  if (!with_moments) return result;
  result.first_moments = result.model.zeros_like_parameters();
  result.second_moments = result.model.zeros_like_parameters();
  for (std::size_t i = 0; i < source.infos().size(); ++i) {
    source.read(1, i, result.first_moments[i].view());
    source.read(2, i, result.second_moments[i].view());
    require_finite(source, "first moment of", i, result.first_moments[i].view());
    require_finite(source, "second moment of", i, result.second_moments[i].view());
  }
  return result;
}

void save_andrea(const std::string& path, const AndreaCheckpoint& c) {
  save_andrea(path, c.model, c.tokenizer, c.layout, c.step, c.first_moments, c.second_moments);
}

void save_andrea(const std::string& path, const Model& model, const Tokenizer& tokenizer, const AndreaLayout& layout,
                 std::int64_t step, const std::vector<Tensor>& first_moments,
                 const std::vector<Tensor>& second_moments) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  AndreaLayout whole = layout;
  whole.config = model.config().resolved();
  const std::int64_t count = parameter_count(whole.config);
  if (count > kMax || step < 0 || step > kMax || model.dtype() != DType::f32)
    throw std::invalid_argument("[andrea] expected an f32 model of at most 2^31 - 1 parameters and steps; found " +
                                std::to_string(count) + " parameters, step " + std::to_string(step));
  const std::vector<AndreaPlace> places = andrea_places(whole, model.infos());
  const std::vector<std::string> segments = segments_of(tokenizer, layout.bytes_first);
  if (tokenizer.size() != whole.config.vocab_size)
    throw std::invalid_argument("[andrea] expected vocab_size " + std::to_string(tokenizer.size()) +
                                " for the segments, 256 bytes and the end token; found " +
                                std::to_string(whole.config.vocab_size));
  const std::vector<Tensor> zeros =
      first_moments.empty() || second_moments.empty() ? model.zeros_like_parameters() : std::vector<Tensor>{};
  const std::vector<Tensor>& m = first_moments.empty() ? zeros : first_moments;
  const std::vector<Tensor>& v = second_moments.empty() ? zeros : second_moments;
  check_moments(model, m);
  check_moments(model, v);
  try {
    replace_file(sibling(path, "harris_segments.json"), nlohmann::json(segments).dump(1) + "\n");
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("[andrea] expected segments in UTF-8, as JSON requires; found other bytes");
  }
  write_andrea_json(sibling(path, "andrea.json"), whole);
  const std::int32_t header[2] = {static_cast<std::int32_t>(step), static_cast<std::int32_t>(count)};
  AtomicFile file(path);
  file.write(header, sizeof header);
  write_part(file, places, model.parameters());
  write_part(file, places, m);
  write_part(file, places, v);
  file.commit();
}

}  // namespace qkv
