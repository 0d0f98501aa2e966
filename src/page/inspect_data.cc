// SPDX-License-Identifier: Apache-2.0
#include "page/inspect_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>

#include "page/packed.h"
#include "page/text.h"
#include "page/token_labels.h"

namespace qkv {
namespace {

std::size_t count(std::int64_t n) noexcept { return static_cast<std::size_t>(n); }

void add_line(std::string& text, const std::vector<std::uint8_t>& bytes, Deflate how) {
  text += base85(deflated(bytes, how));
  text += '\n';
}

// One group: keys and values of a key head, q and z of its query heads.
std::vector<std::uint8_t> group_vectors(const InspectPage& p, const InspectLayer& layer, std::size_t group,
                                        std::int32_t bits) {
  const std::size_t ctx = p.tokens.size(), d_k = count(p.d_k), d_v = count(p.d_v), heads = count(p.n_head);
  const std::size_t groups = count(p.n_kv_head), share = heads / groups;
  std::vector<std::uint8_t> bytes;
  append_vectors(bytes, layer.k + group * d_k, ctx, d_k, groups * d_k, bits);
  append_vectors(bytes, layer.v + group * d_v, ctx, d_v, groups * d_v, bits);
  for (std::size_t h = group * share; h < (group + 1) * share; ++h) {
    append_vectors(bytes, layer.q + h * d_k, ctx, d_k, heads * d_k, bits);
    append_vectors(bytes, layer.z + h * d_v, ctx, d_v, heads * d_v, bits);
  }
  return bytes;
}

template <class T, class Put>
std::string list(std::size_t n, const T* values, const Put& put) {
  std::string text = "[";
  for (std::size_t i = 0; i < n; ++i) {
    if (i > 0) text += ',';
    text += put(values[i]);
  }
  return text += ']';
}

// Four digits, or more if a value below 1 would round to 1.
std::string probability(double value) {
  if (!std::isfinite(value)) return "null";
  if (value == 0) return "0";
  std::string text = fmt::format("{:.4g}", value);
  for (int digits = 5; value < 1 && text == "1" && digits < 18; ++digits) text = fmt::format("{:.{}g}", value, digits);
  return text;
}
std::string whole(std::int32_t value) { return std::to_string(value); }

std::string lens_text(const InspectPage& p) {
  const std::size_t ctx = p.tokens.size(), top = count(p.lens_top);
  std::string text = "[";
  for (const InspectLens& stage : p.lens) {
    text += fmt::format("{}{{\"ids\":{},\n\"probs\":{},\n\"next\":{},\n\"last\":{},\n\"entropy\":{}}}",
                        text.size() > 1 ? ",\n" : "\n", list(ctx * top, stage.top_ids, whole),
                        list(ctx * top, stage.top_probs, probability), list(ctx, stage.next_prob, probability),
                        list(ctx, stage.last_prob, probability), list(ctx, stage.entropy, probability));
  }
  return text + "]";
}

std::string tokens_text(const InspectPage& p) {
  std::string texts = "\"texts\":[", labels = "\"labels\":[";
  const char* comma = "";
  for (const TokenLabel& token : token_labels(p.tokens)) {
    (texts += comma) += json_text(token.text);
    (labels += comma) += token.label == token.text ? std::string("0") : json_text(token.label);
    comma = ",";
  }
  return texts + "],\n" + labels + "],\n\"ids\":" + list(p.ids.size(), p.ids.data(), whole);
}

std::string facts_text(const InspectPage& p) {
  std::string text = "[";
  for (const auto& [name, value] : p.facts) {
    text += fmt::format("{}[{},{}]", text.size() > 1 ? "," : "", json_text(name), json_text(value));
  }
  return text + "]";
}

std::string words_text(const InspectPage& p) {
  std::string text = "{";
  for (const auto& [id, word] : p.words) {
    text += fmt::format("{}\"{}\":{}", text.size() > 1 ? "," : "", id, json_text(token_label(word)));
  }
  return text + "}";
}

std::string scores_text(const std::vector<std::array<double, 4>>& scores) {
  std::string text = "[";
  for (std::size_t kind = 0; kind < 4 && !scores.empty(); ++kind) {
    text += kind > 0 ? ",\n[" : "[";
    for (std::size_t i = 0; i < scores.size(); ++i) {
      text += fmt::format("{}{}", i > 0 ? "," : "", probability(scores[i][kind]));
    }
    text += "]";
  }
  return text + "]";
}

}  // namespace

void check_inspect_page(const InspectPage& p) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("[inspect_page] expected ") + what + "; found something else");
  };
  require(!p.tokens.empty(), "at least one token");
  require(p.ids.size() == p.tokens.size(), "one id per token");
  require(!p.layers.empty(), "at least one layer");
  require(p.n_head > 0 && p.n_kv_head > 0 && p.n_head % p.n_kv_head == 0, "n_head to be a multiple of n_kv_head");
  require(p.d_k > 0 && p.d_v > 0, "d_k and d_v above 0");
  for (const InspectLayer& layer : p.layers) {
    require(layer.q && layer.k && layer.v && layer.z && layer.scaled && layer.pattern,
            "q, k, v, z, scaled scores and pattern of every layer");
  }
  require(p.lens.empty() || (p.lens.size() == p.layers.size() + 1 && p.lens_top > 0), "a lens of n_layer + 1 stages");
  require(p.head_scores.empty() || p.head_scores.size() == p.layers.size() * count(p.n_head), "scores of every head");
}

InspectBlobs inspect_blobs(const InspectPage& p, const InspectPrecision& precision, std::size_t most) {
  const std::size_t ctx = p.tokens.size(), heads = count(p.n_head), square = ctx * ctx;
  InspectBlobs blobs;
  std::vector<std::uint8_t> bytes, sums;
  for (std::size_t l = 0; l < p.layers.size(); ++l) {
    const InspectLayer& layer = p.layers[l];
    for (std::size_t h = 0; h < heads; ++h) {
      const float* pattern = layer.pattern + h * square;  // [ctx, ctx]
      const float* scaled = layer.scaled + h * square;    // [ctx, ctx]
      bytes.clear();
      append_weights(bytes, pattern, ctx, precision);
      add_line(blobs.weights, bytes, Deflate::repeats);
      bytes.clear();
      if (precision.score_bits > 0) {
        append_scores(bytes, scaled, ctx, precision.score_bits);
        add_line(blobs.scores, bytes, Deflate::values);
      } else {
        append_log_sums(sums, scaled, pattern, ctx);
      }
      if (blobs.size() > most) return blobs;
    }
    if (p.rollout) {
      bytes.clear();
      append_weights(bytes, p.rollout + l * square, ctx, precision);
      add_line(blobs.rollout, bytes, Deflate::repeats);
    }
  }
  if (!sums.empty()) add_line(blobs.log_sums, sums, Deflate::values);
  return blobs;
}

std::size_t least_weight_bytes(const float* pattern, std::size_t ctx) {
  std::vector<std::uint8_t> bytes;
  append_weights(bytes, pattern, ctx, {kLeastPeak, 2, 0, 0});
  std::string line;
  add_line(line, bytes, Deflate::repeats);
  return line.size();
}

std::vector<std::array<double, 4>> text_scores(const InspectPage& p) {
  const std::size_t ctx = p.tokens.size(), heads = count(p.n_head), none = ctx;
  std::map<std::int32_t, std::size_t> last;
  std::vector<std::array<std::size_t, 4>> keys(ctx);  // [query] the key for each kind, or none
  for (std::size_t i = 0; i < ctx; ++i) {
    const auto before = last.find(p.ids[i]);
    const std::size_t same = before == last.end() ? none : before->second;
    keys[i] = {i - 1, 0, same, same == none || same + 1 == i ? none : same + 1};
    last[p.ids[i]] = i;
  }
  std::vector<std::array<double, 4>> scores(p.layers.size() * heads);
  for (std::size_t at = 0; at < scores.size(); ++at) {
    const float* pattern = p.layers[at / heads].pattern + at % heads * ctx * ctx;  // [ctx, ctx]
    for (std::size_t kind = 0; kind < 4; ++kind) {
      double sum = 0, queries = 0;
      for (std::size_t i = 1; i < ctx; ++i) {
        if (keys[i][kind] == none) continue;
        sum += pattern[i * ctx + keys[i][kind]];
        ++queries;
      }
      scores[at][kind] = queries > 0 ? sum / queries : 0;
    }
  }
  return scores;
}

namespace {

std::string vector_line(const InspectPage& p, std::size_t group, std::int32_t bits) {
  const std::size_t groups = count(p.n_kv_head);
  std::string text;
  add_line(text, group_vectors(p, p.layers[group / groups], group % groups, bits), Deflate::values);
  return text;
}

// [n_layer * n_kv_head] groups, the most interesting first: requested ones, then by the scores of their heads.
std::vector<std::size_t> by_interest(const InspectPage& p, const std::vector<std::array<double, 4>>& scores) {
  const std::size_t share = count(p.n_head / p.n_kv_head);
  std::vector<double> interest(p.layers.size() * count(p.n_kv_head), 0);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto& s = p.head_scores.empty() ? scores[i] : p.head_scores[i];
    // First-token heads are less informative than the other kinds.
    interest[i / share] = std::max({interest[i / share], s[0], s[1] / 4, s[2], s[3]});
  }
  for (const auto& [layer, head] : p.first) {
    const std::size_t at = count(layer * p.n_kv_head + head / static_cast<std::int64_t>(share));
    if (layer >= 0 && head >= 0 && head < p.n_head && at < interest.size()) interest[at] = 2;
  }
  std::vector<std::size_t> order(interest.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return interest[a] > interest[b]; });
  return order;
}

}  // namespace

std::size_t InspectBlobs::size() const noexcept {
  std::size_t sum = weights.size() + scores.size() + log_sums.size() + rollout.size();
  for (const std::string& line : vectors) sum += line.size();
  return sum;
}

void pack_vectors(InspectBlobs& blobs, const InspectPage& p, std::int32_t bits) {
  const std::size_t groups = p.layers.size() * count(p.n_kv_head);
  blobs.vectors.resize(groups);
  for (std::size_t g = 0; g < groups; ++g) blobs.vectors[g] = vector_line(p, g, bits);
  blobs.vector_bits.assign(groups, bits);
}

bool fit_vectors(InspectBlobs& blobs, const InspectPage& p, const std::vector<std::array<double, 4>>& scores,
                 std::size_t most) {
  pack_vectors(blobs, p, 3);
  const std::size_t least = std::accumulate(blobs.vectors.begin(), blobs.vectors.end(), std::size_t{0},
                                            [](std::size_t sum, const std::string& line) { return sum + line.size(); });
  const bool all = least <= most;
  if (!all) {
    blobs.vectors.assign(blobs.vectors.size(), "\n");
    blobs.vector_bits.assign(blobs.vectors.size(), 0);
  }
  std::size_t used = all ? least : blobs.vectors.size();
  for (const std::size_t g : by_interest(p, scores)) {
    for (const std::int32_t bits : all ? std::vector<std::int32_t>{8, 6, 5, 4} : std::vector<std::int32_t>{4}) {
      std::string line = vector_line(p, g, bits);
      const std::size_t now = used - blobs.vectors[g].size() + line.size();
      if (now > most) continue;
      used = now;
      blobs.vectors[g] = std::move(line);
      blobs.vector_bits[g] = bits;
      break;
    }
  }
  return all;
}

std::string inspect_data(const InspectPage& p, const std::vector<std::array<double, 4>>& scores,
                         const InspectPrecision& precision, const std::vector<std::int32_t>& vector_bits) {
  std::string text = fmt::format(
      "{{\"model\":{},\"facts\":{},\"layers\":{},\"heads\":{},\"kvHeads\":{},\"dk\":{},\"dv\":{},\"rotary\":{},\n",
      json_text(p.model), facts_text(p), p.layers.size(), p.n_head, p.n_kv_head, p.d_k, p.d_v, p.rotary);
  text +=
      fmt::format("\"weightPeak\":{},\"weightPower\":{},\"scoreBits\":{},\"vectorBits\":{},\n", precision.weight_peak,
                  precision.weight_power, precision.score_bits, list(vector_bits.size(), vector_bits.data(), whole));
  text += tokens_text(p) + fmt::format(",\n\"lensTop\":{},\"lens\":", p.lens_top) + lens_text(p);
  return text + ",\n\"words\":" + words_text(p) + ",\n\"textScores\":" + scores_text(scores) +
         ",\n\"headScores\":" + scores_text(p.head_scores) + "}";
}

}  // namespace qkv
