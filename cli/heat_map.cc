// SPDX-License-Identifier: Apache-2.0
#include "heat_map.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "output.h"
#include "qkv/display_text.h"

namespace qkv::cli {
namespace {

constexpr std::size_t kCell = 2;         // columns of a cell
constexpr std::size_t kLabel = 14;       // columns of a label
constexpr std::int64_t kMaxLines = 128;  // one per query

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Dark blue to light yellow, evenly increasing lightness (CIELAB L* 15 ... 95).
std::array<int, 3> colour_of(double x) {
  constexpr std::array<std::array<double, 3>, 5> kStops{
      {{20, 32, 70}, {46, 86, 140}, {32, 145, 140}, {110, 205, 90}, {250, 235, 120}}};
  const double at = x * (kStops.size() - 1);
  const auto i = std::min(static_cast<std::size_t>(at), kStops.size() - 2);
  const double part = at - static_cast<double>(i);
  std::array<int, 3> rgb{};
  for (std::size_t c = 0; c < 3; ++c)
    rgb[c] = static_cast<int>(std::lround(kStops[i][c] + part * (kStops[i + 1][c] - kStops[i][c])));
  return rgb;
}

std::string cell(double weight, Colours colours) {
  const double x = std::sqrt(std::clamp(std::isnan(weight) ? 0.0 : weight, 0.0, 1.0));
  if (colours == Colours::none) {
    constexpr char kShades[] = " .:-=+*#%@";
    const std::size_t shade = weight > 0 ? 1 + std::min<std::size_t>(8, static_cast<std::size_t>(x * 9)) : 0;
    return std::string(kCell, kShades[shade]);
  }
  if (weight <= 0) return std::string("\x1b[0m") + std::string(kCell, ' ');
  if (colours == Colours::greys) return fmt::format("\x1b[48;5;{}m  ", 234 + std::lround(x * 21));
  const auto [r, g, b] = colour_of(x);
  return fmt::format("\x1b[48;2;{};{};{}m  ", r, g, b);
}

}  // namespace

Colours colours_of_output(const std::string& asked) {
  if (asked == "never") return Colours::none;
  if (asked == "auto" &&
      (!output_is_terminal() || *variable("NO_COLOR") != '\0' || std::strcmp(variable("TERM"), "dumb") == 0))
    return Colours::none;
  const std::string depth = variable("COLORTERM");
  return depth == "truecolor" || depth == "24bit" ? Colours::full : Colours::greys;
}

std::size_t output_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

std::string heat_map(const float* weights, std::int64_t queries, std::int64_t keys,
                     const std::vector<std::string>& labels, Colours colours, std::size_t width) {
  const auto room = static_cast<std::int64_t>((std::max(width, kLabel + 8 * kCell) - kLabel) / kCell);
  const std::int64_t block =
      std::max({std::int64_t{1}, (keys + room - 1) / room, (queries + kMaxLines - 1) / kMaxLines});
  std::string text;
  for (std::int64_t i = 0; i < queries; i += block) {
    text += right_aligned(labels[static_cast<std::size_t>(i)], kLabel - 1) + " ";
    for (std::int64_t j = 0; j < keys; j += block) {
      float largest = 0;
      for (std::int64_t a = i; a < std::min(queries, i + block); ++a)
        for (std::int64_t b = j; b < std::min(keys, j + block); ++b) largest = std::max(largest, weights[a * keys + b]);
      text += cell(largest, colours);
    }
    if (colours == Colours::none)
      text.erase(text.find_last_not_of(' ') + 1);
    else
      text += "\x1b[0m";
    text += "\n";
  }
  std::string legend = std::string(kLabel, ' ');
  for (const double weight : {0.01, 0.1, 0.25, 0.5, 1.0})
    legend += cell(weight, colours) + (colours == Colours::none ? "" : "\x1b[0m") + fmt::format(" {}  ", weight);
  if (block > 1) legend += fmt::format("each cell is the maximum of {} x {}", block, block);
  legend.erase(legend.find_last_not_of(' ') + 1);
  return text + legend + "\n";
}

}  // namespace qkv::cli
