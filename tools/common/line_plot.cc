#include "tools/common/line_plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace millrace {
namespace {

constexpr double kWidth = 460;  // of a panel's axes
constexpr double kHeight = 300;
constexpr double kLeft = 64;
constexpr double kTop = 48;
constexpr double kGap = 24;  // between panels

std::string Text(double x, double y, const std::string& anchor, const std::string& text) {
  std::string escaped;
  for (char c : text) {
    if (c == '<') {
      escaped += "&lt;";
    } else if (c == '&') {
      escaped += "&amp;";
    } else {
      escaped += c;
    }
  }
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         escaped);
}

// 1, 2 or 5 times a power of ten, at least `value`.
double RoundUp(double value) {
  if (value <= 0) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (double m : {1.0, 2.0, 5.0}) {
    if (m * power >= value) return m * power;
  }
  return 10 * power;
}

// A panel whose left edge is at x.
class Drawing final {
 public:
  Drawing(const PlotPanel& panel, double x) : panel_(panel), x_(x) {
    double largest = 0;
    for (const PlotLine& line : panel.lines) {
      for (const double value : line.values) largest = std::max(largest, value);
    }
    top_value_ = RoundUp(largest);
  }

  std::string Draw() const {
    std::string out = Axes();
    double legend_y = kTop + 8;
    for (const PlotLine& line : panel_.lines) {
      absl::StrAppend(&out, Line(line), "<g fill=\"", line.color, "\">",
                      Text(x_ + kLeft + 8, legend_y, "start", line.name), "</g>\n");
      legend_y += 16;
    }
    return out;
  }

 private:
  double XOf(size_t i) const {
    const size_t n = panel_.ticks.size();
    return x_ + kLeft +
           (n < 2 ? kWidth / 2 : kWidth * static_cast<double>(i) / static_cast<double>(n - 1));
  }

  std::string Axes() const {
    std::string out = Text(x_ + kLeft, kTop - 14, "start", panel_.y_label);
    for (int tick = 0; tick <= 4; ++tick) {
      const double y = kTop + kHeight * (1 - tick / 4.0);
      absl::StrAppend(&out, absl::StrFormat("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                                            "stroke=\"#ddd\"/>\n",
                                            x_ + kLeft, x_ + kLeft + kWidth, y, y));
      absl::StrAppend(
          &out, Text(x_ + kLeft - 8, y + 4, "end", absl::StrFormat("%g", top_value_ * tick / 4)));
    }
    for (size_t i = 0; i < panel_.ticks.size(); ++i) {
      absl::StrAppend(&out, Text(XOf(i), kTop + kHeight + 20, "middle", panel_.ticks[i]));
    }
    absl::StrAppend(&out,
                    Text(x_ + kLeft + kWidth / 2, kTop + kHeight + 40, "middle", panel_.x_label));
    return out;
  }

  std::string Line(const PlotLine& line) const {
    std::string points, dots;
    for (size_t i = 0; i < line.values.size(); ++i) {
      const double y = kTop + kHeight * (1 - line.values[i] / top_value_);
      absl::StrAppend(&points, absl::StrFormat("%.1f,%.1f ", XOf(i), y));
      absl::StrAppend(
          &dots, absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", XOf(i),
                                 y, line.color));
    }
    return absl::StrCat(dots, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"", line.color,
                        "\" points=\"", points, "\"/>\n");
  }

  const PlotPanel& panel_;
  const double x_;
  double top_value_ = 1;
};

}  // namespace

std::string LinePlotSvg(const std::vector<PlotPanel>& panels, const std::string& title) {
  const double pitch = kWidth + kLeft + kGap;
  const double width = pitch * static_cast<double>(panels.size());
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"white\"/>\n",
      width, kTop + kHeight + 56);
  absl::StrAppend(&out, Text(width / 2, 18, "middle", title));
  for (size_t i = 0; i < panels.size(); ++i) {
    absl::StrAppend(&out, Drawing(panels[i], pitch * static_cast<double>(i)).Draw());
  }
  return absl::StrCat(out, "</svg>\n");
}

}  // namespace millrace
