#include "engine/chat/deepseek_v4/prompt.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/chat/deepseek_v4/dsml.h"
#include "engine/chat/deepseek_v4/fixed_texts.h"
#include "engine/chat/deepseek_v4/turns.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace::deepseek_v4 {
namespace {

absl::Status MessageError(size_t index, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("message ", index, ": ", what));
}

absl::StatusOr<std::string_view> EffortText(const PromptOptions& options) {
  if (options.profile == EffortProfile::kOfficial) {
    if (options.effort == ReasoningEffort::kHigh) return kAbsoluteMaximum;
    return options.effort == ReasoningEffort::kMax ? kBeyondMaximum : "";
  }
  if (options.effort == ReasoningEffort::kLow) {
    return absl::InvalidArgumentError(
        "reasoning effort low: this release of the model has only high and max");
  }
  return options.effort == ReasoningEffort::kMax ? kAbsoluteMaximum : "";
}

// One conversation.
class Renderer final {
 public:
  Renderer(std::vector<Turn> turns, const PromptOptions& options, bool drop_thinking)
      : turns_(std::move(turns)),
        thinking_(options.mode == ThinkingMode::kThinking),
        drop_thinking_(drop_thinking),
        last_user_(LastUser(turns_)) {}

  absl::StatusOr<RenderedChat> Run(std::string_view effort) {
    out_.Control(kBeginOfSentence);
    if (thinking_) out_.Control(effort);
    for (int i = 0; i < static_cast<int>(turns_.size()); ++i) {
      RETURN_IF_ERROR(Say(i));
      if (IsAnswered(i)) AskForAnswer(i);
    }
    return out_.Take();
  }

 private:
  absl::Status Say(int i) {
    const Turn& turn = turns_[i];
    if (turn.role == "system") {
      Instructions(*turn.message);
    } else if (turn.role == "developer") {
      out_.Control(kUser);
      Instructions(*turn.message);
    } else if (turn.role == "user") {
      out_.Control(kUser);
      Blocks(turn.blocks);
    } else if (turn.role == "latest_reminder") {
      out_.Control(kLatestReminder);
      out_.Message(turn.message->content);
    } else {
      return Answer(i);
    }
    return absl::OkStatus();
  }

  void Instructions(const Message& message) {
    out_.Message(message.content);
    if (!message.tools.empty()) {
      out_.Control("\n\n");
      out_.Control(kToolsHead);
      for (size_t i = 0; i < message.tools.size(); ++i) {
        if (i > 0) out_.Control("\n");
        out_.Message(message.tools[i].Dump());
      }
      out_.Control(kToolsTail);
    }
    if (message.response_format.IsTruthy()) {
      out_.Control("\n\n");
      out_.Control(kResponseFormat);
      out_.Message(message.response_format.Dump());
    }
  }

  void Blocks(const std::vector<Block>& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (i > 0) out_.Control("\n\n");
      if (blocks[i].is_tool_result()) out_.Control(kToolResultBegin);
      out_.Message(blocks[i].message->content);
      if (blocks[i].is_tool_result()) out_.Control(kToolResultEnd);
    }
  }

  absl::Status Answer(int i) {
    const Turn& turn = turns_[i];
    const bool did_task = i > 0 && !turns_[i - 1].task.empty();
    if (thinking_ && !did_task && (!drop_thinking_ || i > last_user_)) {
      out_.Message(turn.message->reasoning_content);
      out_.Control(kThinkEnd);
    }
    out_.Message(turn.message->content);
    if (!turn.message->tool_calls.empty()) RETURN_IF_ERROR(Calls(turn));
    if (!turn.message->wo_eos) out_.Control(kEndOfSentence);
    return absl::OkStatus();
  }

  absl::Status Calls(const Turn& turn) {
    out_.Control("\n\n");
    out_.Control(kCallsBegin);
    out_.Control(">\n");
    for (const ToolCall& call : turn.message->tool_calls) {
      const auto parameters = ParametersOf(call.arguments);
      if (!parameters.ok()) {
        return MessageError(
            turn.index, absl::StrCat("call of '", call.name, "': ", parameters.status().message()));
      }
      out_.Control(kInvokeBegin);
      out_.Control(" name=\"");
      out_.Message(call.name);
      out_.Control("\">\n");
      Parameters(*parameters);
      out_.Control("\n");
      out_.Control(kInvokeEnd);
      out_.Control(">\n");
    }
    out_.Control(kCallsEnd);
    return absl::OkStatus();
  }

  void Parameters(const std::vector<DsmlParameter>& parameters) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (i > 0) out_.Control("\n");
      out_.Control(kParameterBegin);
      out_.Control(" name=\"");
      out_.Message(parameters[i].name);
      out_.Control(parameters[i].is_text ? "\" string=\"true\">" : "\" string=\"false\">");
      out_.Message(parameters[i].value);
      out_.Control(kParameterEnd);
      out_.Control(">");
    }
  }

  // Whether the model speaks, or spoke, next.
  bool IsAnswered(int i) const {
    const size_t next = static_cast<size_t>(i) + 1;
    return next == turns_.size() || turns_[next].role == "assistant" ||
           turns_[next].role == "latest_reminder";
  }

  void AskForAnswer(int i) {
    const Turn& turn = turns_[i];
    if (turn.task == "action") {
      out_.Control(kAssistant);
      out_.Control(thinking_ ? kThinkBegin : kThinkEnd);
    }
    if (!turn.task.empty()) {
      out_.Control(TaskToken(turn.task));
    } else if (turn.role == "user" || turn.role == "developer") {
      out_.Control(kAssistant);
      const bool thinks = thinking_ && (!drop_thinking_ || i >= last_user_);
      out_.Control(thinks ? kThinkBegin : kThinkEnd);
    }
  }

  const std::vector<Turn> turns_;
  const bool thinking_;
  const bool drop_thinking_;
  const int last_user_;
  ChatWriter out_;
};

bool IsKnownRole(std::string_view role) {
  return role == "system" || role == "developer" || role == "user" || role == "assistant" ||
         role == "tool" || role == "latest_reminder";
}

bool IsUtf8(const Message& message) {
  const auto is_utf8 = [](const std::string& text) {
    return FindInvalidUtf8(text) == std::string_view::npos;
  };
  return is_utf8(message.content) && is_utf8(message.reasoning_content) &&
         std::all_of(message.tool_calls.begin(), message.tool_calls.end(),
                     [&](const ToolCall& c) { return is_utf8(c.name) && is_utf8(c.arguments); });
}

absl::Status CheckMessages(absl::Span<const Message> messages) {
  if (messages.empty()) return absl::InvalidArgumentError("the conversation holds no message");
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (!IsKnownRole(message.role)) {
      return MessageError(i, absl::StrCat("unknown role '", message.role, "'"));
    }
    if (!IsUtf8(message)) return MessageError(i, "text that is not valid UTF-8");
    if (!message.task.empty() && TaskToken(message.task).empty()) {
      return MessageError(i, absl::StrCat("unknown task '", message.task,
                                          "': want action, query, authority, domain, title or "
                                          "read_url"));
    }
    if (message.role == "developer" && message.content.empty()) {
      return MessageError(i, "a developer message needs content");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RenderedChat> RenderPrompt(absl::Span<const Message> messages,
                                          const PromptOptions& options) {
  ASSIGN_OR_RETURN(const std::string_view effort, EffortText(options));
  RETURN_IF_ERROR(CheckMessages(messages));
  std::vector<Turn> turns = MakeTurns(messages);
  const bool drop_thinking = options.drop_thinking && !HasTools(turns);
  if (drop_thinking && options.mode == ThinkingMode::kThinking) {
    turns = DropBeforeLastUser(std::move(turns));
  }
  Renderer renderer(std::move(turns), options, drop_thinking);
  return renderer.Run(effort);
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const RenderedChat& prompt,
                                                  const Tokenizer& tokenizer) {
  EncodeOptions options;
  options.literal_spans = prompt.message_spans;
  options.literal_scope = LiteralScope::kAddedTokens;
  return tokenizer.Encode(prompt.text, options);
}

}  // namespace millrace::deepseek_v4
