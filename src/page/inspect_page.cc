// SPDX-License-Identifier: Apache-2.0
#include "page/inspect_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "page/assets.h"
#include "page/inspect_data.h"
#include "page/text.h"

namespace qkv {
namespace {

constexpr std::string_view kIcon =
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cg "
    "fill='%232b7fd4'%3E%3Crect "
    "x='1' y='1' width='4' height='4'/%3E%3Crect x='1' y='6' width='4' height='4' opacity='.4'/%3E%3Crect x='6' y='6' "
    "width='4' height='4'/%3E%3Crect x='1' y='11' width='4' height='4' opacity='.2'/%3E%3Crect x='6' y='11' width='4' "
    "height='4' opacity='.5'/%3E%3Crect x='11' y='11' width='4' height='4'/%3E%3C/g%3E%3C/svg%3E";

std::string head(const InspectPage& p) {
  std::string text =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n";
  // Images created by the page itself (PNG export) are blob: and data:.
  text += fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'sha256-{}'; img-src data: blob:; base-uri 'none'; form-action 'none'\">\n",
      kInspectScriptHash);
  return text +
         fmt::format("<title>{} · attention</title>\n<link rel=\"icon\" href=\"{}\">\n<style>\n{}</style>\n</head>\n",
                     html_text(p.model.empty() ? "model" : p.model), kIcon, kInspectStyle);
}

void add_block(std::string& text, const char* id, const std::string& blob) {
  if (!blob.empty()) text += fmt::format("<script type=\"text/plain\" id=\"{}\">{}</script>\n", id, blob);
}

std::string whole_page(const InspectPage& p, const std::vector<std::array<double, 4>>& scores,
                       const InspectPrecision& precision, const InspectBlobs& blobs) {
  std::string text = head(p);
  text += kInspectBody;
  text += "<script type=\"application/json\" id=\"data\">" + inspect_data(p, scores, precision, blobs.vector_bits) +
          "</script>\n";
  add_block(text, "weights", blobs.weights);
  add_block(text, "scores", blobs.scores);
  add_block(text, "log-sums", blobs.log_sums);
  add_block(text, "vectors", std::accumulate(blobs.vectors.begin(), blobs.vectors.end(), std::string()));
  add_block(text, "rollout", blobs.rollout);
  text += "<script>";
  for (const std::string_view part : kInspectScript) text += part;
  return text + "</script>\n</body>\n</html>\n";
}

}  // namespace

std::string inspect_html(const InspectPage& p, std::size_t most) {
  check_inspect_page(p);
  const auto scores = text_scores(p);
  const std::size_t ctx = p.tokens.size(), layers = p.layers.size();
  const std::size_t numbers = layers * ctx *
                              (static_cast<std::size_t>(p.n_head) * static_cast<std::size_t>(p.d_k + p.d_v) +
                               static_cast<std::size_t>(p.n_kv_head) * static_cast<std::size_t>(p.d_k + p.d_v));
  const std::size_t fixed = whole_page(p, scores, inspect_ladder().front(), {}).size() + 500 +
                            3 * layers * static_cast<std::size_t>(p.n_kv_head);
  if (fixed >= most) {
    throw std::invalid_argument(
        fmt::format("[inspect_page] expected at most {} bytes; found {} before the first weight", most, fixed));
  }
  for (const InspectPrecision& precision : inspect_ladder()) {
    const auto bits = static_cast<std::size_t>(precision.vector_bits);
    if (numbers * bits / 16 > most) continue;  // deflate never halves such numbers
    InspectBlobs blobs = inspect_blobs(p, precision, most - fixed);
    if (fixed + blobs.size() > most) continue;
    pack_vectors(blobs, p, precision.vector_bits);
    if (fixed + blobs.size() <= most) return whole_page(p, scores, precision, blobs);
  }
  for (const bool all : {true, false}) {  // whether the vectors of every head must fit
    for (const std::int32_t peak : {255, 127, kLeastPeak}) {
      const InspectPrecision precision{peak, 2, 0, 0};
      InspectBlobs blobs = inspect_blobs(p, precision, most - fixed);
      const std::size_t others = fixed + blobs.size();
      if (!all && peak == 255) continue;  // prefers more heads to finer weights
      if (others + layers * static_cast<std::size_t>(p.n_kv_head) > most) continue;
      if (fit_vectors(blobs, p, scores, most - others) || !all) return whole_page(p, scores, precision, blobs);
    }
  }
  throw std::invalid_argument(fmt::format(
      "[inspect_page] expected weights that fit in {} bytes; found {} layers of {} heads and {} tokens: use a "
      "shorter text",
      most, layers, p.n_head, ctx));
}

}  // namespace qkv
