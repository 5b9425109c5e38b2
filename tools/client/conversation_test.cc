#include "tools/client/conversation.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

TEST(Conversation, TextIsContentAndTheRestGoesAlong) {
  const auto chat = ReadConversation(
      R"([{"role": "user", "content": "hi"},
          {"content": null, "role": "assistant", "tool_calls": [{"b": 1.0, "a": 1e5}]},
          {"role": "tool", "tool_call_id": "1", "content": [{"type": "text"}]}])");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const ChatPrompt want = {
      {"user", "hi"},
      {"assistant", "", R"({"content": null, "tool_calls": [{"b": 1.0, "a": 100000.0}]})"},
      {"tool", "", R"({"tool_call_id": "1", "content": [{"type": "text"}]})"}};
  EXPECT_EQ(*chat, want);
}

TEST(Conversation, RefusesWhatIsNone) {
  for (const char* json : {"", "{}", "[]", "[3]", R"([{"content": "hi"}])", R"([{"role": 1}])"}) {
    EXPECT_EQ(ReadConversation(json).status().code(), absl::StatusCode::kInvalidArgument) << json;
  }
}

TEST(Conversation, ToolsBelongToTheSystemMessage) {
  ChatPrompt chat = {{"user", "hi"}};
  ASSERT_TRUE(AddTools(R"([{"name": "f"}])", chat).ok());
  EXPECT_EQ(chat, (ChatPrompt{{"system", "", R"({"tools": [{"name": "f"}]})"}, {"user", "hi"}}));
  EXPECT_FALSE(AddTools("[]", chat).ok()) << "there are some";
  chat = {{"system", "s", R"({"x": 1})"}};
  ASSERT_TRUE(AddTools("[]", chat).ok());
  EXPECT_EQ(chat, (ChatPrompt{{"system", "s", R"({"x": 1, "tools": []})"}}));
  EXPECT_FALSE(AddTools("{}", chat).ok());
}

}  // namespace
}  // namespace millrace
