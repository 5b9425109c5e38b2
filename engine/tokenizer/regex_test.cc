#include "engine/tokenizer/regex.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/tokenizer/newer_characters.h"
#include "engine/tokenizer/regex_syntax.h"

namespace millrace {
namespace {

std::vector<std::string> Matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  std::vector<std::string> found;
  if (!regex.ok()) return found;
  RegexScratch scratch;
  scratch.has_newer_characters = true;
  RegexIterator matches(**regex, text, &scratch);
  for (RegexMatch match; matches.Next(&match);) {
    found.emplace_back(text.substr(match.begin, match.end - match.begin));
  }
  EXPECT_TRUE(matches.status().ok()) << matches.status();
  return found;
}

using Strings = std::vector<std::string>;

TEST(RegexTest, FindsMatchesFromLeftToRight) {
  EXPECT_EQ(Matches(R"(\p{L}+|\d)", "ab 12 é"), (Strings{"ab", "1", "2", "é"}));
  EXPECT_EQ(Matches("a*", "baac"), (Strings{"", "aa", ""}));
  EXPECT_EQ(Matches("x", ""), Strings{});
  EXPECT_EQ(Matches(R"((?i:'s|'LL))", "a's b'll c'S d\u0027\u017F"),
            (Strings{"'s", "'ll", "'S", "'\u017F"}));
}

TEST(RegexTest, ReadsRubySyntax) {
  EXPECT_EQ(Matches(R"(\s)", "a\u0085\u180E\u00A0"), (Strings{"\u0085", "\u00A0"}));  // no U+180E
  EXPECT_EQ(Matches(R"(\w+)", "a\u0301_1-²"), (Strings{"a\u0301_1", "²"}));
  EXPECT_EQ(Matches(R"(\h+)", "xfF09g"), (Strings{"fF09"}));
  EXPECT_EQ(Matches("^a$", "a\nb\na"), (Strings{"a", "a"}));  // lines, not the whole
  EXPECT_EQ(Matches("(?m:a.b)", "a\nb"), (Strings{"a\nb"}));  // m is "dot matches all"
  EXPECT_EQ(Matches("a.b", "a\nb"), Strings{});
  EXPECT_EQ(Matches("a{2}+", "aaaaa"), (Strings{"aaaa"}));  // repeated, not possessive
  EXPECT_EQ(Matches("(?:ab){1,2}+c", "ababababc"), (Strings{"ababababc"}));
  EXPECT_EQ(Matches("a{,2}b", "aaab"), (Strings{"aab"}));
  EXPECT_EQ(Matches("a{x", "a{x"), (Strings{"a{x"}));
  EXPECT_EQ(Matches(R"([^\S\n]+)", " \n\t"), (Strings{" ", "\t"}));
  EXPECT_EQ(Matches(R"(\p{^L})", "a1"), (Strings{"1"}));
  EXPECT_EQ(Matches(R"([\P{L}])", "a1"), (Strings{"1"}));
  EXPECT_EQ(Matches(R"(\p{Han}+)", "漢字かな"), (Strings{"漢字"}));
  EXPECT_EQ(Matches(R"([[:alpha:]_]+)", "é_1"), (Strings{"é_"}));
  EXPECT_EQ(Matches(R"([]a]+)", "]a"), (Strings{"]a"}));
  EXPECT_EQ(Matches(R"(\u4e00|\x41|\x{42})", "一AB"), (Strings{"一", "A", "B"}));
  EXPECT_EQ(Matches(R"(\bé\b)", "é eé"), (Strings{"é"}));
  EXPECT_EQ(Matches(R"(a++b|a?+c)", "aab c"), (Strings{"aab", "c"}));
}

TEST(RegexTest, RefusesWhatHasNoEqual) {
  for (const auto& [pattern, reason] :
       std::vector<std::pair<const char*, const char*>>{{"[a&&b]", "intersection"},
                                                        {"[a[b]]", "inside another"},
                                                        {R"([\W])", "\\W in a character class"},
                                                        {"(?~a)", "group of a kind"},
                                                        {R"(\q)", "escape \\q"},
                                                        {"[a", "without ]"},
                                                        {"a)", "unmatched )"},
                                                        {"\\", "ends in a backslash"},
                                                        {R"(\p{Nonsense})", "cannot be compiled"},
                                                        {"[[:graph:]]", "[:graph:]"}}) {
    const auto regex = Regex::Compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_NE(regex.status().message().find(reason), std::string::npos) << regex.status();
  }
}

TEST(RegexTest, GivesUpOnRunawayPatterns) {
  const auto regex = Regex::Compile("(a+)+$");
  ASSERT_TRUE(regex.ok()) << regex.status();
  RegexScratch scratch;
  const std::string text = std::string(64, 'a') + "b";
  RegexIterator matches(**regex, text, &scratch);
  RegexMatch match;
  EXPECT_FALSE(matches.Next(&match));
  EXPECT_EQ(matches.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(RegexTest, KnowsTheCategoriesOfNewerCharacters) {
  // A digit and a letter of Unicode 16 (Garay), an ideograph of Unicode 15, a symbol of 16.
  const std::string text = "\U00010D40\U00010D50\U00031350\U0001CCF0\U0001CD00";
  EXPECT_TRUE(HasNewerCharacters(text));
  EXPECT_FALSE(HasNewerCharacters("aé漢\U0001F600\U00020000"));
  EXPECT_EQ(WithStandIns(text).size(), text.size());
  EXPECT_EQ(Matches(R"(\p{N})", text), (Strings{"\U00010D40", "\U0001CCF0"}));
  EXPECT_EQ(Matches(R"(\p{Lu})", text), (Strings{"\U00010D50"}));
  EXPECT_EQ(Matches(R"(\p{Han})", text), (Strings{"\U00031350"}));
  EXPECT_EQ(Matches(R"(\p{S})", text), (Strings{"\U0001CD00"}));
  EXPECT_TRUE(IsNewerNumeric(0x10D40));
  EXPECT_FALSE(IsNewerNumeric(0x10D50));
}

}  // namespace
}  // namespace millrace
