// SPDX-License-Identifier: Apache-2.0
// Line charts with logarithmic axes, as standalone SVG.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace qkv {

struct SvgLine {
  std::string name;
  std::string kind;                               // "plain", "scaled" or "expected": color and dashes
  std::vector<std::pair<double, double>> points;  // x and y above 0; others are skipped
};

struct SvgPanel {
  std::string title;
  std::string x_name;
  std::vector<SvgLine> lines;
};

// The panels in a row, as a complete SVG file, legible on light and dark backgrounds. Text may be hostile.
std::string svg_lines(const std::string& title, const std::vector<SvgPanel>& panels);

}  // namespace qkv
