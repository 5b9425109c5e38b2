#include "engine/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// Parts as "id:text", ordinary text without an id.
std::vector<std::string> Split(const Json& tokens, const std::string& text,
                               const LiteralSpans& literal = {}) {
  const Vocabulary model;
  const auto added = AddedTokens::FromJson(JsonRef(tokens, "added_tokens"), model, Normalizer());
  EXPECT_TRUE(added.ok()) << added.status();
  RegexScratch scratch;
  std::vector<AddedTokens::Part> parts;
  added->Split(text, AddedTokens::Stage::kRaw, literal, &scratch, &parts);
  std::vector<std::string> shown;
  for (const auto& part : parts) {
    const std::string piece = text.substr(part.begin, part.end - part.begin);
    shown.push_back(part.id < 0 ? piece : std::to_string(part.id) + ":" + piece);
  }
  return shown;
}

Json Token(int id, const char* content, Json flags = Json::object()) {
  Json token = {{"id", id}, {"content", content}, {"normalized", false}};
  token.update(flags);
  return token;
}

using Strings = std::vector<std::string>;

TEST(AddedTokensTest, TheLongestOfTheLeftmostWins) {
  const Json tokens = {Token(1, "<a>"), Token(2, "<a><b>"), Token(3, "<b>"), Token(4, "a><")};
  EXPECT_EQ(Split(tokens, "x<a><b>y<b><a>"), (Strings{"x", "2:<a><b>", "y", "3:<b>", "1:<a>"}));
  EXPECT_EQ(Split(tokens, "<a"), (Strings{"<a"}));
  EXPECT_EQ(Split(tokens, ""), Strings{});
}

TEST(AddedTokensTest, TakesBlanksAndWholeWords) {
  const Json strip = {Token(1, "<l>", {{"lstrip", true}}), Token(2, "<r>", {{"rstrip", true}})};
  EXPECT_EQ(Split(strip, "a \u3000<l> b <r> \n c"),
            (Strings{"a", "1: \u3000<l>", " b ", "2:<r> \n ", "c"}));
  EXPECT_EQ(Split(strip, "<r>  <l>"), (Strings{"2:<r>  ", "1:<l>"}));
  const Json word = {Token(1, "the", {{"single_word", true}})};
  EXPECT_EQ(Split(word, "the other, the-the éthe the"),
            (Strings{"1:the", " other, ", "1:the", "-", "1:the", " éthe ", "1:the"}));
}

TEST(AddedTokensTest, OnlySpecialTokensRespectLiteralSpans) {
  const Json tokens = {Token(1, "<s>", {{"special", true}}), Token(2, "<n>")};
  const std::string text = "<s><n><s><n>";
  EXPECT_EQ(Split(tokens, text, LiteralSpans({{0, 6}})),
            (Strings{"<s>", "2:<n>", "1:<s>", "2:<n>"}));
  EXPECT_EQ(Split(tokens, text, LiteralSpans({{8, 9}})),
            (Strings{"1:<s>", "2:<n>", "<s>", "2:<n>"}));
}

TEST(AddedTokensTest, AWiderScopeHidesEveryAddedToken) {
  const Json tokens = {Token(1, "<s>", {{"special", true}}), Token(2, "<n>")};
  EXPECT_EQ(Split(tokens, "<s><n><s><n>", LiteralSpans({{0, 7}}, LiteralScope::kAddedTokens)),
            (Strings{"<s><n><s>", "2:<n>"}));
}

TEST(AddedTokensTest, ATokenBehindALiteralSpanIsFound) {
  // The user's text ends with the beginning of something longer that holds the real token.
  const Json tokens = {Token(1, "<e>", {{"special", true}}), Token(2, "x<e>", {{"special", true}})};
  EXPECT_EQ(Split(tokens, "ax<e>", LiteralSpans({{0, 2}})), (Strings{"ax", "1:<e>"}));
}

}  // namespace
}  // namespace millrace
