// SPDX-License-Identifier: Apache-2.0
#include "page/svg_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/text.h"

namespace qkv {
namespace {

constexpr double kWidth = 440, kHeight = 340;  // per panel
constexpr double kLeft = 62, kRight = 18, kTop = 84, kBottom = 44;

constexpr const char* kStyle =
    "svg{background:#fff;font:13px system-ui,'Noto Sans','DejaVu Sans',sans-serif}"
    "text{fill:#566070}.title{fill:#14181f;font-size:17px;font-weight:650}.name{fill:#14181f;font-weight:600}"
    ".grid{stroke:#e9ecf0}.line{fill:none;stroke-width:2.2;stroke-linejoin:round}.dot{stroke:#fff;stroke-width:1.5}"
    ".plain{stroke:#b84a00}.scaled{stroke:#0b62b8}.expected{stroke:#8a94a3;stroke-width:8;opacity:.35}"
    ".dot.plain{fill:#b84a00}.dot.scaled{fill:#0b62b8}"
    "@media(prefers-color-scheme:dark){svg{background:#171b22}text{fill:#9ba6b5}.title,.name{fill:#e8ebf0}"
    ".grid{stroke:#262c36}.dot{stroke:#171b22}.plain{stroke:#ff9d5c}.scaled{stroke:#6cb4ff}.dot.plain{fill:#ff9d5c}"
    ".dot.scaled{fill:#6cb4ff}}";

struct Axis {
  double low, high;  // decimal logarithms
  double share(double value) const { return (std::log10(value) - low) / (high - low); }
};

bool drawable(const std::pair<double, double>& p) {
  return p.first > 0 && p.second > 0 && std::isfinite(p.first) && std::isfinite(p.second);
}

template <class Pick>
Axis axis_of(const SvgPanel& panel, double room, const Pick& pick) {
  double low = INFINITY, high = -INFINITY;
  for (const SvgLine& line : panel.lines) {
    for (const auto& point : line.points) {
      if (!drawable(point)) continue;
      low = std::min(low, std::log10(pick(point)));
      high = std::max(high, std::log10(pick(point)));
    }
  }
  if (low > high) return {0, 1};
  return {low - room * std::max(0.5, high - low), high + room * std::max(0.5, high - low)};
}

std::string text_at(double x, double y, const char* anchor, const char* kind, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y, anchor, kind,
                     html_text(text));
}

// Powers of ten; on an axis of many decades every second or third, on a short one also their multiples by 2 and 5.
std::vector<double> powers(const Axis& axis) {
  std::vector<double> values;
  const int every = std::max(1, static_cast<int>((axis.high - axis.low) / 6));
  for (int e = static_cast<int>(std::floor(axis.low)); e <= static_cast<int>(std::floor(axis.high)); e += every) {
    for (const double part : {1.0, 2.0, 5.0}) {
      const double value = part * std::pow(10.0, e);
      const bool inside = std::log10(value) >= axis.low && std::log10(value) <= axis.high;
      if (inside && (part == 1.0 || axis.high - axis.low < 2.5)) values.push_back(value);
    }
  }
  return values;
}

std::string panel_text(const SvgPanel& panel, double left) {
  const Axis x_axis = axis_of(panel, 0.04, [](const auto& p) { return p.first; });
  const Axis y_axis = axis_of(panel, 0.08, [](const auto& p) { return p.second; });
  const double x0 = left + kLeft, x1 = left + kWidth - kRight, y0 = kHeight - kBottom, y1 = kTop;
  const auto x = [&](double value) { return x0 + (x1 - x0) * x_axis.share(value); };
  const auto y = [&](double value) { return y0 - (y0 - y1) * y_axis.share(value); };
  std::string text = text_at(x0 - 44, 56, "start", "name", panel.title);
  for (const double tick : powers(y_axis)) {
    text += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", x0, y(tick), x1);
    text += text_at(x0 - 8, y(tick) + 4, "end", "tick", fmt::format("{:g}", tick));
  }
  std::vector<double> columns;
  for (const SvgLine& line : panel.lines) {
    for (const auto& point : line.points) {
      if (drawable(point) && std::find(columns.begin(), columns.end(), point.first) == columns.end()) {
        columns.push_back(point.first);
        text += text_at(x(point.first), y0 + 20, "middle", "tick", fmt::format("{:g}", point.first));
      }
    }
  }
  text += text_at((x0 + x1) / 2, y0 + 38, "middle", "tick", panel.x_name);
  double legend = x0;
  for (const SvgLine& line : panel.lines) {
    std::string path, dots;
    for (const auto& point : line.points) {
      if (!drawable(point)) continue;
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(point.first), y(point.second));
      if (line.kind != "expected") {
        dots += fmt::format("<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n", html_text(line.kind),
                            x(point.first), y(point.second));
      }
    }
    text += fmt::format("<path class=\"line {}\" d=\"{}\"/>\n{}", html_text(line.kind), path, dots);
    text += fmt::format("<path class=\"line {}\" d=\"M{:.1f} 71h18\"/>\n", html_text(line.kind), legend);
    text += text_at(legend + 24, 75, "start", "tick", line.name);
    legend += 44 + 7.2 * static_cast<double>(line.name.size());
  }
  return text;
}

}  // namespace

std::string svg_lines(const std::string& title, const std::vector<SvgPanel>& panels) {
  const double width = kWidth * static_cast<double>(std::max<std::size_t>(1, panels.size()));
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n",
      width, kHeight, html_text(title), kStyle);
  text += text_at(18, 29, "start", "title", title);
  for (std::size_t i = 0; i < panels.size(); ++i) text += panel_text(panels[i], kWidth * static_cast<double>(i));
  return text + "</svg>\n";
}

}  // namespace qkv
