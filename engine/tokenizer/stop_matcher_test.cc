#include "engine/tokenizer/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace {
namespace {

using Strings = std::vector<std::string>;

struct Outcome {
  std::string text;
  std::optional<int> matched;
};

// The whole text at once, by the definition.
Outcome Search(const Strings& stops, const std::string& text, bool include_stop) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int found = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      const std::string& stop = stops[i];
      if (stop.empty() || stop.size() > end) continue;
      if (text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      if (found < 0 || stop.size() > stops[static_cast<size_t>(found)].size()) {
        found = static_cast<int>(i);
      }
    }
    if (found < 0) continue;
    const size_t cut = include_stop ? end : end - stops[static_cast<size_t>(found)].size();
    return {text.substr(0, cut), found};
  }
  return {text, std::nullopt};
}

TEST(StopMatcherTest, AgreesWithAWholeTextSearchHoweverTheTextIsCut) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    const auto any = [&](size_t longest) {
      std::string text;
      for (size_t n = random() % (longest + 1); n > 0; --n) {
        text.push_back(static_cast<char>('a' + random() % 2));
      }
      return text;
    };
    Strings stops;
    for (size_t n = random() % 4; n > 0; --n) stops.push_back(any(5));
    const std::string text = any(20);
    const bool include_stop = random() % 2 == 0;
    const Outcome want = Search(stops, text, include_stop);

    StopMatcher matcher(stops, include_stop);
    Outcome have;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 4;
      const StopMatcher::Result result = matcher.Push(std::string_view(text).substr(at, length));
      have.text += result.emit;
      have.matched = result.matched;
      at += length;
      if (!result.matched.has_value()) {
        // No more is held than could still become a stop string.
        const std::string seen = text.substr(0, std::min(at, text.size()));
        const std::string held = seen.substr(have.text.size());
        bool is_prefix = held.empty();
        for (const std::string& stop : stops) is_prefix |= stop.compare(0, held.size(), held) == 0;
        ASSERT_TRUE(is_prefix) << held;
      }
    }
    have.text += matcher.Flush();
    ASSERT_EQ(have.text, want.text) << text;
    ASSERT_EQ(have.matched, want.matched) << text;
  }
}

TEST(StopMatcherTest, StaysSilentAfterAMatch) {
  StopMatcher matcher({"END"}, false);
  EXPECT_EQ(matcher.Push("aE").emit, "a");
  const auto result = matcher.Push("NDxyz");
  EXPECT_EQ(result.emit, "");
  EXPECT_EQ(result.matched, 0);
  EXPECT_EQ(matcher.Push("more").emit, "");
  EXPECT_EQ(matcher.Push("more").matched, 0);
  EXPECT_EQ(matcher.Flush(), "");
}

}  // namespace
}  // namespace millrace
