// The plot of report.h.
#include <functional>

#include "absl/strings/str_cat.h"
#include "tools/bench/report.h"
#include "tools/common/line_plot.h"

namespace millrace {
namespace {

PlotPanel PanelOf(const std::vector<Summary>& points, const std::string& y_label) {
  PlotPanel panel = {.y_label = y_label, .x_label = "requests in flight"};
  for (const Summary& s : points) panel.ticks.push_back(absl::StrCat(s.concurrency));
  return panel;
}

PlotLine LineOf(const std::vector<Summary>& points, const std::string& name,
                const std::string& color, const std::function<double(const Summary&)>& value) {
  PlotLine line = {.name = name, .color = color};
  for (const Summary& s : points) line.values.push_back(value(s));
  return line;
}

}  // namespace

std::string FormatSvg(const std::vector<Summary>& points, const std::string& title) {
  PlotPanel throughput = PanelOf(points, "tokens/s");
  throughput.lines = {LineOf(points, "output", "#1f77b4",
                             [](const Summary& s) { return s.output_tokens_per_second; }),
                      LineOf(points, "prompt + output", "#9ecae1",
                             [](const Summary& s) { return s.total_tokens_per_second; })};
  PlotPanel latency = PanelOf(points, "milliseconds");
  latency.lines = {
      LineOf(points, "TTFT p50", "#d62728", [](const Summary& s) { return s.ttft.p50 * 1e3; }),
      LineOf(points, "TTFT p99", "#f4a6a6", [](const Summary& s) { return s.ttft.p99 * 1e3; }),
      LineOf(points, "TPOT p50", "#2ca02c", [](const Summary& s) { return s.tpot.p50 * 1e3; }),
      LineOf(points, "TPOT p99", "#a5dba5", [](const Summary& s) { return s.tpot.p99 * 1e3; })};
  return LinePlotSvg({throughput, latency}, title);
}

}  // namespace millrace
