// Line plots as SVG text: a few panels, a few lines, no library needed to look at them.
#ifndef TOOLS_COMMON_LINE_PLOT_H_
#define TOOLS_COMMON_LINE_PLOT_H_

#include <string>
#include <vector>

namespace millrace {

struct PlotLine {
  std::string name;
  std::string color;           // of SVG: "#1f77b4"
  std::vector<double> values;  // at least 0; one for each of the panel's ticks
};

struct PlotPanel {
  std::string y_label;
  std::string x_label;
  // Equally spaced, whatever they stand for: their order matters, and sweeps are mostly powers of
  // two.
  std::vector<std::string> ticks;
  std::vector<PlotLine> lines;
};

// Panels side by side below the title.
std::string LinePlotSvg(const std::vector<PlotPanel>& panels, const std::string& title);

}  // namespace millrace

#endif  // TOOLS_COMMON_LINE_PLOT_H_
