#include "distributed/controller/frontdoor/text_stream.h"

#include <string>

#include "distributed/controller/frontdoor/served_model.h"
#include "distributed/controller/frontdoor/testing/letters.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

std::shared_ptr<const Tokenizer> Letters() {
  const std::string folder = WriteLettersFolder(::testing::TempDir());
  return LoadServedModel(folder, folder)->tokenizer;
}

// All that comes out for `text`, one byte a token.
std::string Feed(TextStream& stream, const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += stream.Push(static_cast<unsigned char>(c), true);
    if (stream.matched().has_value()) break;
  }
  return out;
}

TEST(TextStream, HoldsBackWhatMayBecomeAStop) {
  TextOptions options;
  options.stop = {"END", "ENOUGH"};
  TextStream stream(Letters(), options, {});
  EXPECT_EQ(Feed(stream, "an E"), "an ");
  EXPECT_EQ(Feed(stream, "N"), "");
  EXPECT_EQ(Feed(stream, "x"), "ENx");
  EXPECT_EQ(Feed(stream, "ENOUGH of it"), "");
  EXPECT_EQ(stream.matched(), "ENOUGH");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, TheRestComesInTheEnd) {
  TextOptions options;
  options.stop = {"abc"};
  TextStream stream(Letters(), options, {});
  EXPECT_EQ(Feed(stream, "xab"), "x");
  EXPECT_EQ(stream.Finish(), "ab");
}

TEST(TextStream, StopsBeforeTheyMayCountAreText) {
  TextOptions options;
  options.stop = {"b"};
  TextStream stream(Letters(), options, {});
  EXPECT_EQ(stream.Push('b', false), "b");
  EXPECT_EQ(stream.Push('b', true), "");
  EXPECT_TRUE(stream.matched().has_value());
}

TEST(TextStream, WithoutATokenizerThereIsNoText) {
  TextStream stream(nullptr, TextOptions(), {});
  EXPECT_EQ(stream.Push('a', true), "");
  EXPECT_EQ(stream.Finish(), "");
}

}  // namespace
}  // namespace millrace
