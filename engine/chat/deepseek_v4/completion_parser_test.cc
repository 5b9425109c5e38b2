#include "engine/chat/deepseek_v4/completion_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/chat/deepseek_v4/fixed_texts.h"

namespace millrace::deepseek_v4 {
namespace {

struct Parsed {
  Completion completion;
  CompletionDelta given;  // all deltas together
};

Parsed Parse(ThinkingMode mode, std::string_view text, const std::vector<size_t>& cuts) {
  CompletionParser parser(mode);
  Parsed parsed;
  const auto add = [&](CompletionDelta delta) {
    EXPECT_EQ(FindInvalidUtf8(delta.content), std::string_view::npos);
    EXPECT_EQ(FindInvalidUtf8(delta.reasoning_content), std::string_view::npos);
    parsed.given.content += delta.content;
    parsed.given.reasoning_content += delta.reasoning_content;
    for (ToolCall& call : delta.tool_calls) parsed.given.tool_calls.push_back(std::move(call));
  };
  size_t begin = 0;
  for (const size_t cut : cuts) {
    add(parser.Push(text.substr(begin, cut - begin)));
    begin = cut;
  }
  add(parser.Push(text.substr(begin)));
  add(parser.Finish());
  parsed.completion = parser.completion();
  EXPECT_EQ(parser.malformed(), !parsed.completion.malformed.empty());
  return parsed;
}

// On one line: reasoning, content and calls, or what is wrong.
std::string Shown(ThinkingMode mode, std::string_view text) {
  const Completion c = Parse(mode, text, {}).completion;
  EXPECT_EQ(c.text, text);
  if (!c.malformed.empty()) return "malformed: " + c.malformed;
  std::string shown = "[" + c.reasoning_content + "][" + c.content + "]";
  for (const ToolCall& call : c.tool_calls) shown += " " + call.name + call.arguments;
  return shown + (c.ended ? "" : " not ended");
}

// "|" stands for the DSML token, "$" for the end of the sentence.
std::string Long(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') {
      result += kDsml;
    } else if (c == '$') {
      result += kEndOfSentence;
    } else {
      result += c;
    }
  }
  return result;
}
std::string Chat(std::string_view text) { return Shown(ThinkingMode::kChat, Long(text)); }
std::string Thinking(std::string_view text) { return Shown(ThinkingMode::kThinking, Long(text)); }

constexpr char kTwoCalls[] =
    "\n\n<|tool_calls>\n"
    "<|invoke name=\"f\">\n"
    "<|parameter name=\"a\" string=\"true\">x \"y\"\n</|parameter>\n"
    "<|parameter name=\"b\" string=\"false\">[1, 2]</|parameter>\n"
    "</|invoke>\n"
    "<|invoke name=\"g\">\n\n</|invoke>\n"
    "</|tool_calls>";

TEST(CompletionParser, ReasoningContentAndCalls) {
  const std::string calls = R"( f{"a": "x \"y\"\n", "b": [1, 2]} g{})";
  EXPECT_EQ(Chat("Hello$"), "[][Hello]");
  EXPECT_EQ(Chat("$"), "[][]");
  EXPECT_EQ(Chat("a < b\n\n</p> <tool$"), "[][a < b\n\n</p> <tool]");
  EXPECT_EQ(Thinking("why\n</think>\nHello$"), "[why\n][\nHello]");
  EXPECT_EQ(Thinking("</think>$"), "[][]");
  EXPECT_EQ(Chat(std::string("Hi") + kTwoCalls + "$"), "[][Hi]" + calls);
  EXPECT_EQ(Thinking(std::string("why</think>") + kTwoCalls + "$"), "[why][]" + calls);
  EXPECT_EQ(Chat(std::string("a\n") + kTwoCalls + "$"), "[][a\n]" + calls);
}

TEST(CompletionParser, MalformedTexts) {
  EXPECT_EQ(Chat(""), "malformed: the content has no end");
  EXPECT_EQ(Chat("Hello"), "malformed: the content has no end");
  EXPECT_EQ(Chat("Hello<｜end▁of"), "malformed: the content has no end");
  EXPECT_EQ(Chat("a$b"), "malformed: text behind the end-of-sentence token");
  EXPECT_EQ(Chat("a$$"), "malformed: text behind the end-of-sentence token");
  EXPECT_EQ(Chat("a</think>b$"), "malformed: </think> in the content");
  EXPECT_EQ(Chat("a|b$"), "malformed: ｜DSML｜ in the content");
  EXPECT_EQ(Chat("a\n<|tool_calls>\n$"), "malformed: ｜DSML｜ in the content");
  EXPECT_EQ(Thinking("why"), "malformed: the reasoning has no end");
  EXPECT_EQ(Thinking("why$"), "malformed: <｜end▁of▁sentence｜> in the reasoning");
  EXPECT_EQ(Thinking("a<think></think>$"), "malformed: <think> in the reasoning");
  EXPECT_EQ(Thinking(std::string("a") + kTwoCalls + "$"),
            "malformed: <｜DSML｜tool_calls in the reasoning");
  EXPECT_EQ(Chat(std::string(kTwoCalls) + "x$"), "malformed: text behind the tool calls");
  EXPECT_EQ(Chat(std::string(kTwoCalls) + "$x"),
            "malformed: text behind the end-of-sentence token");
  EXPECT_EQ(Chat("\n\n<|tool_calls><|invoke name=\"f\">\n\n</|invoke>\n</|tool_calls>$"),
            "malformed: want a line break, then a call or the end of the calls");
  EXPECT_EQ(Chat("\n\n<|tool_calls>\n<|invoke name=f>\n\n</|invoke>\n</|tool_calls>$"),
            "malformed: a call without a proper name");
  const auto parameters = [](const std::string& text) {
    return Chat("\n\n<|tool_calls>\n<|invoke name=\"f\">\n" + text + "</|invoke>\n</|tool_calls>$");
  };
  const std::string a = "<|parameter name=\"a\" string=\"true\">x</|parameter>\n";
  EXPECT_EQ(parameters(a), R"([][] f{"a": "x"})");
  EXPECT_EQ(parameters(a + a), "malformed: the parameter 'a' is there twice");
  EXPECT_EQ(parameters(a + "\n"), "malformed: want a line break behind a parameter");
  EXPECT_EQ(parameters("<|parameter name=\"a\">x</|parameter>\n"),
            "malformed: a parameter that cannot be read");
  EXPECT_EQ(parameters("<|parameter name=\"a\" string=\"true\">x"),
            "malformed: a parameter has no end");
  EXPECT_EQ(Shown(ThinkingMode::kChat, "a\x80"), "malformed: byte 1 is not UTF-8");
  EXPECT_EQ(Shown(ThinkingMode::kChat, Long("a$") + "\xFF"), "malformed: byte 28 is not UTF-8");
  EXPECT_EQ(Shown(ThinkingMode::kChat, Long(std::string(kTwoCalls)) + "\xE6"),
            "malformed: the text ends among the tool calls");
}

// What the publisher's parser makes of texts that were cut off.
TEST(CompletionParser, TextsCutOffAmongTheCalls) {
  EXPECT_EQ(Chat("a\n\n<|tool_calls"), "[][a] not ended");
  EXPECT_EQ(Chat("a\n\n<|tool_calls>\n"), "malformed: the text ends among the tool calls");
  EXPECT_EQ(Chat("\n\n<|tool_calls>\n<|invoke name=\"f\">\n"), "[][] f{} not ended");
  EXPECT_EQ(Chat("\n\n<|tool_calls>\n<|invoke name=\"f"),
            "malformed: a call without a proper name");
  EXPECT_EQ(Chat("\n\n<|tool_calls>\n<|invoke name=\"f\">\n\n</|invoke"), "[][] f{} not ended");
  EXPECT_EQ(Chat(kTwoCalls), R"([][] f{"a": "x \"y\"\n", "b": [1, 2]} g{} not ended)");
}

TEST(CompletionParser, GivesOutTextAsSoonAsItIsNoTag) {
  CompletionParser parser(ThinkingMode::kThinking);
  EXPECT_EQ(parser.Push("wh").reasoning_content, "wh");
  EXPECT_EQ(parser.Push("y</thi").reasoning_content, "y");
  EXPECT_EQ(parser.Push("s").reasoning_content, "</this");
  EXPECT_TRUE(parser.Push("</think>").empty());
  EXPECT_EQ(parser.Push("a\n").content, "a");
  EXPECT_TRUE(parser.Push("\n").empty());
  EXPECT_EQ(parser.Push("\n").content, "\n") << "of three line breaks only two can begin the calls";
  EXPECT_EQ(parser.Push("b\xE6").content, "\n\nb");
  EXPECT_TRUE(parser.Push("\xB0").empty());
  EXPECT_EQ(parser.Push("\xB4").content, "水");
  EXPECT_EQ(parser.Push("a|<").content, "a|");
  EXPECT_EQ(parser.Finish().content, "<");
  EXPECT_EQ(parser.completion().malformed, "the content has no end");
  EXPECT_EQ(parser.completion().content, "");
}

TEST(CompletionParser, GivesOutEachCallWhenItEnds) {
  CompletionParser parser(ThinkingMode::kChat);
  EXPECT_EQ(parser.Push(Long("\n\n<|tool_calls>\n<|invoke name=\"f\">\n\n")).tool_calls.size(), 0u);
  const CompletionDelta delta = parser.Push(Long("</|invoke>\n<|invoke"));
  EXPECT_EQ(delta.tool_calls, (std::vector<ToolCall>{{"", "f", "{}"}}));
}

std::vector<size_t> RandomCuts(size_t bytes, std::mt19937& random) {
  std::vector<size_t> cuts(random() % (2 + bytes / 2));
  for (size_t& cut : cuts) cut = random() % (bytes + 1);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

// Texts of tags, pieces of tags and bytes of every kind.
std::string RandomText(std::mt19937& random) {
  const std::vector<std::string> pieces = {
      Long("\n\n<|tool_calls"),
      ">\n",
      Long("<|invoke"),
      " name=\"f\">\n",
      Long("<|parameter"),
      " name=\"a\" string=\"true\">x<",
      " name=\"b\" string=\"false\">1<",
      Long("/|parameter"),
      Long("</|invoke"),
      Long("</|tool_calls>"),
      "</think>",
      "<think>",
      std::string(kEndOfSentence),
      std::string(kBeginOfSentence),
      std::string(kDsml),
      "text 水车\n",
      "\n",
      "<",
  };
  std::string text;
  for (size_t i = random() % 24; i > 0; --i) {
    const std::string& piece = pieces[random() % pieces.size()];
    if (random() % 8 == 0) {
      text += piece.substr(random() % piece.size());  // may begin inside a character
    } else if (random() % 30 == 0) {
      text += static_cast<char>(random() % 256);
    } else {
      text += piece;
    }
  }
  return text;
}

// A well-formed text with some bytes changed, taken out or put twice.
std::string DamagedText(std::mt19937& random) {
  std::string text = Long("why</think>so" + std::string(kTwoCalls) + "$");
  for (size_t i = random() % 3; i > 0; --i) {
    const size_t at = random() % text.size();
    const size_t count = random() % 5;
    switch (random() % 3) {
      case 0:
        text[at] = static_cast<char>(random() % 256);
        break;
      case 1:
        text.erase(at, count);
        break;
      default:
        text.insert(at, text.substr(at, count));
    }
  }
  return random() % 4 == 0 ? text.substr(0, random() % (text.size() + 1)) : text;
}

void ExpectSame(const Parsed& have, const Parsed& want) {
  EXPECT_EQ(have.completion.malformed, want.completion.malformed);
  EXPECT_EQ(have.completion.text, want.completion.text);
  EXPECT_EQ(have.completion.reasoning_content, want.completion.reasoning_content);
  EXPECT_EQ(have.completion.content, want.completion.content);
  EXPECT_EQ(have.completion.tool_calls, want.completion.tool_calls);
  EXPECT_EQ(have.completion.ended, want.completion.ended);
  EXPECT_EQ(have.given.reasoning_content, want.given.reasoning_content);
  EXPECT_EQ(have.given.content, want.given.content);
  EXPECT_EQ(have.given.tool_calls, want.given.tool_calls);
}

TEST(CompletionParser, AnyTextInAnySplit) {
  std::mt19937 random(5);
  int well_formed = 0;
  for (int round = 0; round < 1500 && !testing::Test::HasFailure(); ++round) {
    const std::string text = round % 2 == 0 ? RandomText(random) : DamagedText(random);
    const ThinkingMode mode = random() % 3 == 0 ? ThinkingMode::kChat : ThinkingMode::kThinking;
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << testing::PrintToString(text));
    const Parsed whole = Parse(mode, text, {});
    EXPECT_EQ(whole.completion.text, text);
    if (whole.completion.malformed.empty()) {
      ++well_formed;
      EXPECT_EQ(whole.given.content, whole.completion.content);
      EXPECT_EQ(whole.given.reasoning_content, whole.completion.reasoning_content);
      EXPECT_EQ(whole.given.tool_calls, whole.completion.tool_calls);
    }
    std::vector<size_t> every_byte(text.size());
    for (size_t i = 0; i < text.size(); ++i) every_byte[i] = i;
    ExpectSame(Parse(mode, text, every_byte), whole);
    for (int i = 0; i < 3; ++i)
      ExpectSame(Parse(mode, text, RandomCuts(text.size(), random)), whole);
  }
  EXPECT_GT(well_formed, 60);
}

TEST(CompletionParser, LongTextsTakeNoQuadraticTime) {
  for (const std::string unit : {"<", "\n\n<｜DSML｜", "a"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    CompletionParser parser(ThinkingMode::kChat);
    for (size_t i = 0; i < text.size(); i += 3) parser.Push(std::string_view(text).substr(i, 3));
    parser.Finish();
    EXPECT_EQ(parser.completion().text.size(), text.size());
  }
  std::string calls = "\n\n<|tool_calls>\n<|invoke name=\"f\">\n";
  for (int i = 0; i < 20'000; ++i) {
    calls += "<|parameter name=\"p" + std::to_string(i) + "\" string=\"false\">1</|parameter>\n";
  }
  const Completion c =
      Parse(ThinkingMode::kChat, Long(calls + "</|invoke>\n</|tool_calls>$"), {}).completion;
  EXPECT_EQ(c.malformed, "");
  ASSERT_EQ(c.tool_calls.size(), 1u);
}

}  // namespace
}  // namespace millrace::deepseek_v4
