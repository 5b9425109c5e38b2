#include "engine/chat/deepseek_v4/turns.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace millrace::deepseek_v4 {
namespace {

using CallOrder = absl::flat_hash_map<std::string, size_t>;

CallOrder OrderOf(const std::vector<ToolCall>& calls) {
  CallOrder order;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i].id.empty()) order[calls[i].id] = i;
  }
  return order;
}

// What was said between the answers keeps its place.
void SortToolResults(const CallOrder& order, std::vector<Block>* blocks) {
  std::vector<Block> results;
  for (const Block& block : *blocks) {
    if (block.is_tool_result()) results.push_back(block);
  }
  const auto place = [&](const Block& block) {
    const auto call = order.find(block.message->tool_call_id);
    return call == order.end() ? 0 : call->second;
  };
  std::stable_sort(results.begin(), results.end(),
                   [&](const Block& a, const Block& b) { return place(a) < place(b); });
  size_t next = 0;
  for (Block& block : *blocks) {
    if (block.is_tool_result()) block = results[next++];
  }
}

}  // namespace

std::vector<Turn> MakeTurns(absl::Span<const Message> messages) {
  std::vector<Turn> turns;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool is_tool = message.role == "tool";
    const bool is_user = is_tool || message.role == "user";
    const bool follows_user = !turns.empty() && turns.back().role == "user";
    if (is_user && follows_user && (is_tool || turns.back().task.empty())) {
      turns.back().blocks.push_back({&message});
      continue;
    }
    Turn turn{.role = is_user ? "user" : std::string_view(message.role),
              .task = is_tool ? "" : std::string_view(message.task),
              .message = &message,
              .index = i};
    if (is_user) turn.blocks.push_back({&message});
    turns.push_back(std::move(turn));
  }
  CallOrder order;
  for (Turn& turn : turns) {
    if (turn.role == "assistant" && !turn.message->tool_calls.empty()) {
      order = OrderOf(turn.message->tool_calls);
    } else if (turn.role == "user") {
      SortToolResults(order, &turn.blocks);
    }
  }
  return turns;
}

bool HasTools(absl::Span<const Turn> turns) {
  return std::any_of(turns.begin(), turns.end(),
                     [](const Turn& turn) { return !turn.message->tools.empty(); });
}

int LastUser(absl::Span<const Turn> turns) {
  int last = static_cast<int>(turns.size()) - 1;
  while (last >= 0 && turns[last].role != "user" && turns[last].role != "developer") --last;
  return last;
}

std::vector<Turn> DropBeforeLastUser(std::vector<Turn> turns) {
  const int last = LastUser(turns);
  std::vector<Turn> kept;
  for (int i = 0; i < static_cast<int>(turns.size()); ++i) {
    if (i >= last || turns[i].role != "developer") kept.push_back(std::move(turns[i]));
  }
  return kept;
}

}  // namespace millrace::deepseek_v4
