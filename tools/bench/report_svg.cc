// The plot of report.h, written by hand: two panels, a few lines, no library needed to look at it.
#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/bench/report.h"

namespace millrace {
namespace {

constexpr double kWidth = 460;
constexpr double kHeight = 300;
constexpr double kLeft = 64;
constexpr double kTop = 48;

struct Series {
  std::string name;
  std::string color;
  std::function<double(const Summary&)> value;
};

struct Panel {
  double x = 0;  // left edge of the picture's panel
  std::string label;
  std::vector<Series> series;
};

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

// Load points are equally spaced: their order matters, and sweeps are usually powers of two.
double XOf(const Panel& panel, size_t i, size_t n) {
  return panel.x + kLeft +
         (n < 2 ? kWidth / 2 : kWidth * static_cast<double>(i) / static_cast<double>(n - 1));
}

std::string DrawAxes(const Panel& panel, const std::vector<Summary>& points, double top_value) {
  std::string out = Text(panel.x + kLeft, kTop - 14, "start", panel.label);
  for (int tick = 0; tick <= 4; ++tick) {
    const double y = kTop + kHeight * (1 - tick / 4.0);
    absl::StrAppend(&out, absl::StrFormat("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                                          "stroke=\"#ddd\"/>\n",
                                          panel.x + kLeft, panel.x + kLeft + kWidth, y, y));
    absl::StrAppend(
        &out, Text(panel.x + kLeft - 8, y + 4, "end", absl::StrFormat("%g", top_value * tick / 4)));
  }
  for (size_t i = 0; i < points.size(); ++i) {
    absl::StrAppend(&out, Text(XOf(panel, i, points.size()), kTop + kHeight + 20, "middle",
                               absl::StrCat(points[i].concurrency)));
  }
  absl::StrAppend(&out, Text(panel.x + kLeft + kWidth / 2, kTop + kHeight + 40, "middle",
                             "requests in flight"));
  return out;
}

std::string DrawPanel(const Panel& panel, const std::vector<Summary>& points) {
  double largest = 0;
  for (const Series& series : panel.series) {
    for (const Summary& s : points) largest = std::max(largest, series.value(s));
  }
  const double top_value = RoundUp(largest);
  std::string out = DrawAxes(panel, points, top_value);
  double legend_y = kTop + 8;
  for (const Series& series : panel.series) {
    std::string line;
    for (size_t i = 0; i < points.size(); ++i) {
      const double x = XOf(panel, i, points.size());
      const double y = kTop + kHeight * (1 - series.value(points[i]) / top_value);
      absl::StrAppend(&line, absl::StrFormat("%.1f,%.1f ", x, y));
      absl::StrAppend(
          &out, absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x, y,
                                series.color));
    }
    absl::StrAppend(&out, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"", series.color,
                    "\" points=\"", line, "\"/>\n<g fill=\"", series.color, "\">",
                    Text(panel.x + kLeft + 8, legend_y, "start", series.name), "</g>\n");
    legend_y += 16;
  }
  return out;
}

}  // namespace

std::string FormatSvg(const std::vector<Summary>& points, const std::string& title) {
  const Panel throughput = {
      .x = 0,
      .label = "tokens/s",
      .series = {{"output", "#1f77b4", [](const Summary& s) { return s.output_tokens_per_second; }},
                 {"prompt + output", "#9ecae1",
                  [](const Summary& s) { return s.total_tokens_per_second; }}}};
  const Panel latency = {
      .x = kWidth + kLeft + 24,
      .label = "milliseconds",
      .series = {{"TTFT p50", "#d62728", [](const Summary& s) { return s.ttft.p50 * 1e3; }},
                 {"TTFT p99", "#f4a6a6", [](const Summary& s) { return s.ttft.p99 * 1e3; }},
                 {"TPOT p50", "#2ca02c", [](const Summary& s) { return s.tpot.p50 * 1e3; }},
                 {"TPOT p99", "#a5dba5", [](const Summary& s) { return s.tpot.p99 * 1e3; }}}};
  const double width = 2 * (kWidth + kLeft) + 48;
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"white\"/>\n",
      width, kTop + kHeight + 56);
  absl::StrAppend(&out, Text(width / 2, 18, "middle", title), DrawPanel(throughput, points),
                  DrawPanel(latency, points), "</svg>\n");
  return out;
}

}  // namespace millrace
