#include "tools/common/terminal.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(Terminal, ClockText) {
  EXPECT_EQ(ClockText(0), "00:00");
  EXPECT_EQ(ClockText(-5), "00:00");
  EXPECT_EQ(ClockText(61.9), "01:01");
  EXPECT_EQ(ClockText(3723), "1:02:03");
}

TEST(Terminal, BytesText) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(2.69e8), "269.0 MB");
  EXPECT_EQ(BytesText(1.5e9), "1.5 GB");
}

TEST(Terminal, BarLeavesOneLineWhereNothingMoves) {
  std::ostringstream out;
  ProgressBar bar("Loading", out, false);
  for (int i = 0; i <= 10; ++i) bar.Update(i * 1000000, 10000000);
  EXPECT_EQ(out.str(), "");
  bar.Finish();
  bar.Finish();
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.find("Loading: 100% |########################| 10.0/10.0 MB ["), 0u) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Terminal, BarOfThings) {
  std::ostringstream out;
  ProgressBar bar("Capturing", out, false, "graphs");
  bar.Update(3, 4);
  bar.Finish();
  EXPECT_EQ(out.str().find("Capturing:  75% |##################      | 3/4 graphs [00:00<00:0"), 0u)
      << out.str();
}

TEST(Terminal, BarThatNeverMovedShowsNothing) {
  std::ostringstream out;
  ProgressBar bar("Loading", out, true);
  bar.Finish();
  EXPECT_EQ(out.str(), "");
}

TEST(Terminal, BarMoves) {
  std::ostringstream out;
  ProgressBar bar("Loading", out, true);
  bar.Update(1, 4);
  EXPECT_NE(out.str().find(" 25% |######                  | 1.0/4.0 B"), std::string::npos)
      << out.str();
  bar.Update(9, 4);  // never past the end
  bar.Finish();
  EXPECT_NE(out.str().find("100%"), std::string::npos);
  EXPECT_EQ(out.str().find("225%"), std::string::npos);
}

TEST(Terminal, SpinnerWipesItselfAway) {
  std::ostringstream out;
  {
    Spinner spinner("thinking", out, true);
    spinner.Stop();
    spinner.Stop();
  }
  const std::string text = out.str();
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K");
  std::ostringstream still;
  Spinner("thinking", still, false).Stop();
  EXPECT_EQ(still.str(), "");
}

}  // namespace
}  // namespace millrace
