#include "tools/client/chat_answer.h"

#include <gtest/gtest.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace millrace {
namespace {

constexpr int32_t kEnd = 7;
const char kEos[] = "<｜end▁of▁sentence｜>";
const char kCall[] =
    "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n"
    "<｜DSML｜parameter name=\"x\" string=\"false\">1</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>";

struct Shown {
  std::string answer;
  std::string notes;
  std::string json;
  std::string malformed;
};

// The text in pieces of `piece` bytes, of which all but the last come before the end.
Shown Show(bool thinking, const std::string& text, std::optional<int32_t> matched,
           size_t piece = 3) {
  ChatAnswer answer({.thinking = thinking, .end_tokens = {3, kEnd}});
  std::ostringstream out, notes;
  ChatPrinter printer(out, notes);
  for (size_t at = 0; at + piece < text.size(); at += piece) {
    printer.Show(answer.Push(text.substr(at, piece)));
  }
  ResponseComplete complete;
  complete.text = text;
  complete.matched_token = matched;
  printer.Show(answer.End(complete));
  printer.End(answer, text);
  return {out.str(), notes.str(), answer.Json().dump(), answer.malformed()};
}

TEST(ChatAnswer, ReasoningIsShownApart) {
  const Shown shown = Show(true, "so so</think>Hello", kEnd);
  EXPECT_EQ(shown.answer, "Hello\n");
  EXPECT_EQ(shown.notes, "--- reasoning\nso so\n--- answer\n");
  EXPECT_EQ(shown.json, R"({"role":"assistant","reasoning_content":"so so","content":"Hello"})");
  EXPECT_EQ(Show(false, "Hello", kEnd).notes, "");
}

TEST(ChatAnswer, ToolCallsAreLinesOfJson) {
  const std::string call =
      R"({"type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}})";
  const Shown shown = Show(false, std::string("Let me see") + kCall, kEnd);
  EXPECT_EQ(shown.malformed, "");
  EXPECT_EQ(shown.answer, "Let me see\n" + call + "\n");
  EXPECT_EQ(shown.json,
            R"({"role":"assistant","content":"Let me see","tool_calls":[)" + call + "]}");
  EXPECT_EQ(Show(true, std::string("t</think>") + kCall, kEnd).answer, call + "\n");
}

TEST(ChatAnswer, PiecesMakeNoDifference) {
  const std::string text = std::string("é</think>Größe") + kCall;
  const Shown whole = Show(true, text, kEnd, text.size());
  for (size_t piece = 1; piece < 9; ++piece) {
    const Shown shown = Show(true, text, kEnd, piece);
    EXPECT_EQ(shown.answer, whole.answer);
    EXPECT_EQ(shown.notes, whole.notes);
    EXPECT_EQ(shown.json, whole.json);
  }
}

TEST(ChatAnswer, TheEndTokenMayBeInTheText) {
  EXPECT_EQ(Show(false, std::string("Hello") + kEos, kEnd).answer, "Hello\n");
  EXPECT_EQ(Show(false, std::string("Hello") + kEos, kEnd).malformed, "");
}

TEST(ChatAnswer, CutOffIsNotMalformed) {
  // By a limit, or by a stop token of the user's own.
  for (const std::optional<int32_t> matched :
       {std::optional<int32_t>(), std::optional<int32_t>(9)}) {
    const Shown shown = Show(true, "so so", matched);
    EXPECT_EQ(shown.malformed, "");
    EXPECT_EQ(shown.answer, "");
    EXPECT_EQ(shown.notes, "--- reasoning\nso so\n");
    EXPECT_EQ(Show(false, "Hel", matched).answer, "Hel\n");
  }
}

TEST(ChatAnswer, MalformedIsShownAsItCame) {
  const Shown shown = Show(true, "no end", kEnd);
  EXPECT_EQ(shown.malformed, "<｜end▁of▁sentence｜> in the reasoning");
  EXPECT_NE(shown.notes.find("not well formed"), std::string::npos);
  EXPECT_NE(shown.notes.find("no end"), std::string::npos);
  // Also when a limit cut it off behind the fault.
  EXPECT_NE(Show(false, "a<think>b", std::nullopt).malformed, "");
}

}  // namespace
}  // namespace millrace
