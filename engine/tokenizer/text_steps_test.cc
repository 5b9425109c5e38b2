// Normalizers, pre-tokenizers, decoders and UTF-8, one by one.
#include <gtest/gtest.h>

#include "engine/tokenizer/byte_level.h"
#include "engine/tokenizer/decode_stream.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/utf8.h"

namespace millrace {
namespace {

using Strings = std::vector<std::string>;

std::string Normalized(const char* spec, std::string text) {
  const Json json = Json::parse(spec);
  const auto normalizer = Normalizer::FromJson(JsonRef(json, "normalizer"));
  EXPECT_TRUE(normalizer.ok()) << normalizer.status();
  RegexScratch scratch;
  bool at_start = true;
  EXPECT_TRUE(normalizer->Apply(&text, &at_start, &scratch).ok());
  return text;
}

TEST(NormalizerTest, EachKind) {
  EXPECT_EQ(Normalized(R"({"type":"Prepend","prepend":"_"})", "a"), "_a");
  EXPECT_EQ(Normalized(R"({"type":"Prepend","prepend":"_"})", ""), "");
  EXPECT_EQ(Normalized(R"({"type":"Replace","pattern":{"String":"aa"},"content":"b"})", "aaa"),
            "ba");
  EXPECT_EQ(Normalized(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})", "a   b"),
            "a b");
  EXPECT_EQ(Normalized(R"({"type":"NFC"})", "e\u0301"), "\u00E9");
  EXPECT_EQ(Normalized(R"({"type":"NFD"})", "\u00E9"), "e\u0301");
  EXPECT_EQ(Normalized(R"({"type":"NFKC"})", "\uFB01\u2460"), "fi1");
  EXPECT_EQ(Normalized(R"({"type":"NFKD"})", "\uFF21\u00E9"), "Ae\u0301");
  EXPECT_EQ(Normalized(R"({"type":"Lowercase"})", "AÉ\u0130ẞ"), "aéi\u0307ß");
  EXPECT_EQ(Normalized(R"({"type":"Strip","strip_left":true,"strip_right":true})", "\u3000a \n"),
            "a");
  EXPECT_EQ(Normalized(R"({"type":"Strip","strip_left":true,"strip_right":true})", " \u2003 "), "");
  EXPECT_EQ(Normalized(R"({"type":"ByteLevel"})", " é"), "ĠÃ©");
}

Strings Words(const std::string& spec, std::string_view text, bool at_start = true) {
  const Json json = Json::parse(spec);
  const auto pre_tokenizer = PreTokenizer::FromJson(JsonRef(json, "pre_tokenizer"));
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  PreTokenizerScratch scratch;
  Strings words;
  EXPECT_TRUE(pre_tokenizer
                  ->Split(text, at_start, &scratch,
                          [&](std::string_view word) { words.emplace_back(word); })
                  .ok());
  return words;
}

Strings SplitAtDash(const std::string& behavior, const std::string& invert = "false") {
  return Words(R"({"type":"Split","pattern":{"String":"-"},"behavior":")" + behavior +
                   R"(","invert":)" + invert + "}",
               "the-final--countdown");
}

TEST(PreTokenizerTest, BehavioursOfSplit) {
  EXPECT_EQ(SplitAtDash("Removed"), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(SplitAtDash("Isolated"), (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(SplitAtDash("MergedWithPrevious"), (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(SplitAtDash("MergedWithNext"), (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(SplitAtDash("Contiguous"), (Strings{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(SplitAtDash("Removed", "true"), (Strings{"-", "-", "-"}));
}

TEST(PreTokenizerTest, Metaspace) {
  const auto meta = [](const char* scheme, const char* split) {
    return std::string(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":")") + scheme +
           R"(","split":)" + split + "}";
  };
  EXPECT_EQ(Words(meta("always", "true"), "a  b"), (Strings{"▁a", "▁", "▁b"}));
  EXPECT_EQ(Words(meta("always", "false"), "a b"), (Strings{"▁a▁b"}));
  EXPECT_EQ(Words(meta("always", "true"), " a"), (Strings{"▁a"}));
  EXPECT_EQ(Words(meta("first", "true"), "a", true), (Strings{"▁a"}));
  EXPECT_EQ(Words(meta("first", "true"), "a", false), (Strings{"a"}));
  EXPECT_EQ(Words(meta("never", "true"), "a b"), (Strings{"a", "▁b"}));
}

TEST(PreTokenizerTest, OtherKinds) {
  EXPECT_EQ(Words(R"({"type":"ByteLevel","add_prefix_space":true})", "it's 12\n"),
            (Strings{" it", "'s", " 12", "\n"}));
  EXPECT_EQ(Words(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})", "a b"),
            (Strings{"a b"}));
  EXPECT_EQ(Words(R"({"type":"Digits","individual_digits":true})", "a12²"),
            (Strings{"a", "1", "2", "²"}));
  EXPECT_EQ(Words(R"({"type":"Digits","individual_digits":false})", "a12b"),
            (Strings{"a", "12", "b"}));
  EXPECT_EQ(Words(R"({"type":"Whitespace"})", "a-b  c"), (Strings{"a", "-", "b", "c"}));
  EXPECT_EQ(Words(R"({"type":"WhitespaceSplit"})", "a-b \u2003c"), (Strings{"a-b", "c"}));
  EXPECT_EQ(Words(R"({"type":"Punctuation"})", "a。b"), (Strings{"a", "。", "b"}));
  EXPECT_EQ(Words(R"({"type":"CharDelimiterSplit","delimiter":"x"})", "axxb"), (Strings{"a", "b"}));
  EXPECT_EQ(Words(R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
                      {"type":"ByteLevel","add_prefix_space":false}]})",
                  "a 1 b"),
            (Strings{"a", " ", "1", " b"}));
}

std::string Decoded(const char* spec, const Strings& tokens) {
  const Json json = Json::parse(spec);
  auto decoder = Decoder::FromJson(JsonRef(json, "decoder"));
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  const DecodeTable table(*std::move(decoder), static_cast<int32_t>(tokens.size()),
                          [&](int32_t id) {
                            return DecodeTable::Token{tokens[id], false};
                          });
  DecodeStream stream(table, false);
  std::string text;
  for (int32_t id = 0; id < static_cast<int32_t>(tokens.size()); ++id) stream.Push(id, &text);
  stream.Finish(&text);
  return text;
}

TEST(DecoderTest, EachKind) {
  EXPECT_EQ(Decoded("null", {"a", "b"}), "a b");
  EXPECT_EQ(Decoded(R"({"type":"ByteLevel"})", {"ĠÃ", "©x", "Ã"}), " éx\uFFFD");
  EXPECT_EQ(Decoded(R"({"type":"ByteLevel"})", {"Ġ a", "x"}), "Ġ ax");  // not of the alphabet
  EXPECT_EQ(Decoded(R"({"type":"Metaspace","replacement":"▁"})", {"▁a", "▁b"}), "a b");
  EXPECT_EQ(
      Decoded(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})", {"▁a", "▁b"}),
      " a b");
  EXPECT_EQ(Decoded(R"({"type":"Strip","content":"x","start":1,"stop":1})", {"xxaxx", "x", "y"}),
            "xaxy");  // each token by itself
}

TEST(DecoderTest, ByteRunsAreWholeOrBroken) {
  const char* kSpec = R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]})";
  EXPECT_EQ(Decoded(kSpec, {"<0xC3>", "<0xA9>", "x"}), "éx");
  EXPECT_EQ(Decoded(kSpec, {"<0xC3>", "x", "<0xA9>"}), "\uFFFDx\uFFFD");
  EXPECT_EQ(Decoded(kSpec, {"<0x41>", "<0xFF>", "<0x42>"}), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Decoded(kSpec, {"<0xGG>", "<0x4>"}), "<0xGG><0x4>");
}

TEST(DecoderTest, StripsTheEndsOfTheWholeAsItStreams) {
  const char* kSpec = R"({"type":"Sequence","decoders":[{"type":"Fuse"},
      {"type":"Strip","content":" ","start":2,"stop":2}]})";
  EXPECT_EQ(Decoded(kSpec, {" ", " ", " a", " ", " b ", " ", " "}), " a  b ");
  EXPECT_EQ(Decoded(kSpec, {" ", " ", " "}), "");
  EXPECT_EQ(Decoded(kSpec, {"a", " ", " ", " ", " "}), "a  ");
}

TEST(Utf8Test, SanitizesByMaximalParts) {
  const auto sanitized = [](std::string_view bytes) {
    Utf8Sanitizer sanitizer;
    std::string out;
    for (const char c : bytes) sanitizer.Push(std::string_view(&c, 1), &out);
    sanitizer.Finish(&out);
    return out;
  };
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(sanitized("aé水\xF0\x9F\x98\x80"), "aé水\xF0\x9F\x98\x80");
  EXPECT_EQ(sanitized("\xF0\x9F\x98"), r);  // one maximal part
  EXPECT_EQ(sanitized("\xF0\x9F"
                      "a"),
            r + "a");
  EXPECT_EQ(sanitized("\xE6\xB0\xE6\xB0\xB4"), r + "水");
  EXPECT_EQ(sanitized("\xC0\xAF"), r + r);          // overlong
  EXPECT_EQ(sanitized("\xED\xA0\x80"), r + r + r);  // a surrogate
  EXPECT_EQ(sanitized("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(sanitized("\x80"), r);
}

TEST(Utf8Test, FindsTheFirstBadByte) {
  EXPECT_EQ(FindInvalidUtf8("abcdefghijé水"), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8(""), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("abcdefghi\xFF"), 9u);
  EXPECT_EQ(FindInvalidUtf8("ab\xE6\xB0"), 2u);
  EXPECT_EQ(FindInvalidUtf8("12345678\xE6\xB0x"), 8u);
  for (char32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 37) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    AppendUtf8(code, &text);
    size_t pos = 0;
    ASSERT_EQ(NextCodePoint(text, &pos), code);
    ASSERT_EQ(pos, text.size());
    ASSERT_EQ(CodePointBefore(text, text.size()), code);
    ASSERT_EQ(FindInvalidUtf8(text), std::string_view::npos);
  }
}

TEST(ByteLevelTest, IsABijection) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    EXPECT_EQ(DecodeByteLevel(EncodeByteLevel(bytes)), bytes);
  }
  EXPECT_EQ(EncodeByteLevel(" \n"), "ĠĊ");
  EXPECT_EQ(DecodeByteLevel("a b"), std::nullopt);
}

}  // namespace
}  // namespace millrace
