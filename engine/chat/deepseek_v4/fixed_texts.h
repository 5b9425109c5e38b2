// The texts that DeepSeek-V4 was trained to see and write, byte for byte.
#ifndef ENGINE_CHAT_DEEPSEEK_V4_FIXED_TEXTS_H_
#define ENGINE_CHAT_DEEPSEEK_V4_FIXED_TEXTS_H_

#include <string_view>

namespace millrace::deepseek_v4 {

inline constexpr std::string_view kBeginOfSentence = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";

// Tool calls. What follows a tag's name is written by whoever uses it.
inline constexpr std::string_view kCallsBegin = "<｜DSML｜tool_calls";
inline constexpr std::string_view kCallsEnd = "</｜DSML｜tool_calls>";
inline constexpr std::string_view kInvokeBegin = "<｜DSML｜invoke";
inline constexpr std::string_view kInvokeEnd = "</｜DSML｜invoke";
inline constexpr std::string_view kParameterBegin = "<｜DSML｜parameter";
inline constexpr std::string_view kParameterEnd = "</｜DSML｜parameter";

inline constexpr std::string_view kToolResultBegin = "<tool_result>";
inline constexpr std::string_view kToolResultEnd = "</tool_result>";

inline constexpr std::string_view kResponseFormat =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

// Around the schemas of the tools.
extern const std::string_view kToolsHead;
extern const std::string_view kToolsTail;

// Stand before everything else in thinking mode.
extern const std::string_view kAbsoluteMaximum;
extern const std::string_view kBeyondMaximum;

// The token that asks for a task; empty for a task not known.
std::string_view TaskToken(std::string_view task);

}  // namespace millrace::deepseek_v4

#endif  // ENGINE_CHAT_DEEPSEEK_V4_FIXED_TEXTS_H_
