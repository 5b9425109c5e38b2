// Conversations against what Jinja makes of them with templates like the models' own.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/chat/chat_template.h"

namespace millrace {
namespace {

TEST(RenderedChats, AreWhatJinjaRenders) {
  std::ifstream file("engine/chat/testdata/rendered.json");
  const nlohmann::json recorded = nlohmann::json::parse(file);
  ASSERT_GE(recorded["cases"].size(), 100u);
  for (const auto& c : recorded["cases"]) {
    SCOPED_TRACE(c.dump());
    const auto chat =
        ChatTemplate::Recognise({.chat_template = recorded["templates"][c["template"]]});
    ASSERT_TRUE(chat.has_value());
    std::vector<ChatMessage> messages;
    for (const auto& m : c["messages"]) messages.push_back({m["role"], m["content"]});
    const auto rendered = RenderChat(*chat, messages);
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    EXPECT_EQ(rendered->text, c["rendered"].get<std::string>());
  }
}

}  // namespace
}  // namespace millrace
