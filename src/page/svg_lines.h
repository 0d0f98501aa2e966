// SPDX-License-Identifier: Apache-2.0
// Lines over logarithmic axes, as a picture of its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace qkv {

struct SvgLine {
  std::string name;
  std::string kind;                               // "plain", "scaled" or "expected": its colour and dashes
  std::vector<std::pair<double, double>> points;  // x and y above 0; others are left out
};

struct SvgPanel {
  std::string title;
  std::string x_name;
  std::vector<SvgLine> lines;
};

// The panels side by side, as a complete SVG file that reads well on light and dark ground and needs nothing else. Any
// text may be hostile.
std::string svg_lines(const std::string& title, const std::vector<SvgPanel>& panels);

}  // namespace qkv
