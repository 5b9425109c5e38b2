// The first half of making a prompt: which messages are shown to the model, and in which turns.
#ifndef ENGINE_CHAT_DEEPSEEK_V4_TURNS_H_
#define ENGINE_CHAT_DEEPSEEK_V4_TURNS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "engine/chat/deepseek_v4/message.h"

namespace millrace::deepseek_v4 {

// What a user's turn is made of: something said, or a tool's answer. Refers to the messages.
struct Block {
  const Message* message = nullptr;
  bool is_tool_result() const { return message->role == "tool"; }
};

// One or more messages that are shown as one. Refers to the messages.
struct Turn {
  std::string_view role;  // never "tool": tools answer in the user's turn
  std::string_view task;
  const Message* message = nullptr;  // the first
  size_t index = 0;                  // its number
  std::vector<Block> blocks;         // of a user's turn
};

// User and tool messages in a row become one turn (a task ends it), with the tools' answers in the
// order of the calls.
std::vector<Turn> MakeTurns(absl::Span<const Message> messages);

// Whether any message names tools. Reasoning is kept then.
bool HasTools(absl::Span<const Turn> turns);

// The number of the last turn of a user or developer, or -1.
int LastUser(absl::Span<const Turn> turns);

// Without what stood before the last user's turn and is not shown again: developer messages.
// Reasoning goes, too; that is up to who renders the turns.
std::vector<Turn> DropBeforeLastUser(std::vector<Turn> turns);

}  // namespace millrace::deepseek_v4

#endif  // ENGINE_CHAT_DEEPSEEK_V4_TURNS_H_
