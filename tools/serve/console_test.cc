#include "tools/serve/console.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(Console, AnotherTitleEndsTheBarBefore) {
  std::ostringstream out;
  Console console(out, /*moving=*/false);
  console.Progress("Loading", 500, 1000);
  console.Progress("Loading", 1000, 1000);
  EXPECT_EQ(out.str(), "");
  console.Progress("Capturing", 2, 3, "graphs");
  console.Progress("Capturing", 3, 3, "graphs");
  console.EndProgress();
  console.EndProgress();
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_EQ(text.rfind("Loading: 100% ", 0), 0u) << text;
  EXPECT_NE(text.find("\nCapturing: 100% |########################| 3/3 graphs ["),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace millrace
