#include "tools/common/line_plot.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(LinePlotTest, PutsPointsWhereTheirValuesAre) {
  const std::string svg = LinePlotSvg(
      {{.y_label = "y", .x_label = "x", .ticks = {"1", "8"}, .lines = {{"l", "red", {50, 100}}}}},
      "a < b & c");
  EXPECT_TRUE(Has(svg, "a &lt; b &amp; c"));
  // The axis ends at 100; the second value is at its top, the first half way.
  EXPECT_TRUE(Has(svg, "points=\"64.0,198.0 524.0,48.0 \"")) << svg;
  EXPECT_TRUE(Has(svg, ">8</text>"));
  EXPECT_TRUE(Has(svg, "stroke=\"red\""));
}

TEST(LinePlotTest, PanelsStandSideBySideAndNothingIsDividedByNothing) {
  const PlotPanel one = {
      .y_label = "", .x_label = "", .ticks = {"1"}, .lines = {{"l", "red", {0}}}};
  const std::string svg = LinePlotSvg({one, one}, "");
  EXPECT_TRUE(Has(svg, "width=\"1096\""));
  EXPECT_TRUE(Has(svg, "points=\"294.0,348.0 \"")) << svg;
  EXPECT_TRUE(Has(svg, "points=\"842.0,348.0 \"")) << svg;
}

}  // namespace
}  // namespace millrace
