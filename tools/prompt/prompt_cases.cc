#include "tools/prompt/prompt_cases.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/chat/deepseek_v4/python_json.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using deepseek_v4::EffortProfile;
using deepseek_v4::PythonJson;
using deepseek_v4::ReasoningEffort;
using deepseek_v4::ThinkingMode;

absl::Status WrongField(const char* key, const char* want) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": want ", want));
}

absl::StatusOr<std::string> Text(const PythonJson& object, const char* key) {
  const PythonJson* value = object.Find(key);
  if (value == nullptr || !value->is_string()) return WrongField(key, "a text");
  return value->text;
}

absl::StatusOr<std::string> TextOr(const PythonJson& object, const char* key, const char* missing) {
  const PythonJson* value = object.Find(key);
  if (value == nullptr || value->is_null()) return std::string(missing);
  return Text(object, key);
}

absl::StatusOr<ThinkingMode> Mode(const PythonJson& object) {
  ASSIGN_OR_RETURN(const std::string mode, Text(object, "thinking_mode"));
  if (mode == "chat") return ThinkingMode::kChat;
  if (mode == "thinking") return ThinkingMode::kThinking;
  return WrongField("thinking_mode", "chat or thinking");
}

absl::StatusOr<ReasoningEffort> Effort(const PythonJson& object) {
  ASSIGN_OR_RETURN(const std::string effort, TextOr(object, "reasoning_effort", ""));
  if (effort.empty()) return ReasoningEffort::kDefault;
  if (effort == "low") return ReasoningEffort::kLow;
  if (effort == "high") return ReasoningEffort::kHigh;
  if (effort == "max") return ReasoningEffort::kMax;
  return WrongField("reasoning_effort", "low, high, max or null");
}

absl::StatusOr<EffortProfile> Profile(const PythonJson& object) {
  ASSIGN_OR_RETURN(const std::string profile, TextOr(object, "profile", "preview"));
  if (profile == "preview") return EffortProfile::kPreview;
  if (profile == "official") return EffortProfile::kOfficial;
  return WrongField("profile", "preview or official");
}

absl::StatusOr<std::vector<int32_t>> Ids(const PythonJson& object) {
  const PythonJson* list = object.Find("ids");
  if (list == nullptr || !list->is_array()) return WrongField("ids", "a list of integers");
  std::vector<int32_t> ids;
  for (const PythonJson& id : list->elements) {
    if (!absl::SimpleAtoi(id.text, &ids.emplace_back())) {
      return WrongField("ids", "a list of integers");
    }
  }
  return ids;
}

absl::StatusOr<PromptCase> ReadPrompt(const PythonJson& object) {
  PromptCase read;
  const PythonJson* messages = object.Find("messages");
  if (messages == nullptr) return WrongField("messages", "a list");
  ASSIGN_OR_RETURN(read.messages, deepseek_v4::ReadMessages(*messages));
  ASSIGN_OR_RETURN(read.options.mode, Mode(object));
  ASSIGN_OR_RETURN(read.options.effort, Effort(object));
  ASSIGN_OR_RETURN(read.options.profile, Profile(object));
  if (const PythonJson* drop = object.Find("drop_thinking"); drop != nullptr) {
    read.options.drop_thinking = drop->IsTruthy();
  }
  ASSIGN_OR_RETURN(read.prompt, Text(object, "prompt"));
  ASSIGN_OR_RETURN(read.ids, Ids(object));
  return read;
}

absl::StatusOr<ParseCase> ReadParse(const PythonJson& object) {
  ParseCase read;
  ASSIGN_OR_RETURN(read.mode, Mode(object));
  ASSIGN_OR_RETURN(read.completion, Text(object, "completion"));
  const PythonJson* message = object.Find("message");
  if (message == nullptr || message->is_null()) return read;
  ParseCase::Message& want = read.message.emplace();
  ASSIGN_OR_RETURN(want.content, Text(*message, "content"));
  ASSIGN_OR_RETURN(want.reasoning_content, Text(*message, "reasoning_content"));
  const PythonJson* calls = message->Find("tool_calls");
  if (calls == nullptr) return read;
  for (const PythonJson& call : calls->elements) {
    const PythonJson* function = call.Find("function");
    if (function == nullptr) return WrongField("tool_calls", "functions");
    deepseek_v4::ToolCall& want_call = want.tool_calls.emplace_back();
    ASSIGN_OR_RETURN(want_call.name, Text(*function, "name"));
    ASSIGN_OR_RETURN(want_call.arguments, Text(*function, "arguments"));
  }
  return read;
}

// The elements of the list `key`, each read by `read`.
template <typename Case>
absl::StatusOr<std::vector<Case>> ReadList(const PythonJson& document, const char* key,
                                           absl::StatusOr<Case> (*read)(const PythonJson&)) {
  std::vector<Case> cases;
  const PythonJson* list = document.Find(key);
  if (list == nullptr) return cases;
  if (!list->is_array()) return WrongField(key, "a list");
  for (const PythonJson& object : list->elements) {
    auto one = read(object);
    if (!one.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, "[", cases.size(), "]: ", one.status().message()));
    }
    cases.push_back(*std::move(one));
  }
  return cases;
}

}  // namespace

absl::StatusOr<PromptCases> ParsePromptCases(std::string_view json) {
  ASSIGN_OR_RETURN(const PythonJson document, PythonJson::Parse(json));
  PromptCases cases;
  ASSIGN_OR_RETURN(cases.prompts, ReadList(document, "prompts", &ReadPrompt));
  ASSIGN_OR_RETURN(cases.parses, ReadList(document, "parses", &ReadParse));
  if (cases.prompts.empty() && cases.parses.empty()) {
    return absl::InvalidArgumentError("holds neither prompts nor parses");
  }
  return cases;
}

}  // namespace millrace
