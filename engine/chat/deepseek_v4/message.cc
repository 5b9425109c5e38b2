#include "engine/chat/deepseek_v4/message.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace::deepseek_v4 {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// An object and what it is called in messages: "message 3", "message 3: tool call 0".
struct Fields {
  const PythonJson& object;
  std::string name;

  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", View(what)));
  }
  // Null where the member is missing.
  const PythonJson* Find(std::string_view key) const {
    const PythonJson* value = object.Find(key);
    return value != nullptr && !value->is_null() ? value : nullptr;
  }
  // Empty where the member is missing or null.
  absl::StatusOr<std::string> Text(std::string_view key) const {
    const PythonJson* value = Find(key);
    if (value == nullptr) return std::string();
    if (!value->is_string()) return Error(absl::StrCat(View(key), " is not a text"));
    return value->text;
  }
  absl::StatusOr<std::string> RequiredText(std::string_view key) const {
    if (Find(key) == nullptr) return Error(absl::StrCat("has no ", View(key)));
    return Text(key);
  }
  // None where the member is missing or null.
  absl::StatusOr<std::vector<PythonJson>> List(std::string_view key) const {
    const PythonJson* value = Find(key);
    if (value == nullptr) return std::vector<PythonJson>();
    if (!value->is_array()) return Error(absl::StrCat(View(key), " is not a list"));
    return value->elements;
  }
};

// The parts of a tool's answer as one text.
absl::StatusOr<std::string> JoinParts(const Fields& message, const std::vector<PythonJson>& parts) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Fields part{parts[i], absl::StrCat(message.name, ": content part ", i)};
    if (!parts[i].is_object()) return part.Error("is not an object");
    ASSIGN_OR_RETURN(const std::string type, part.RequiredText("type"));
    if (i > 0) joined += "\n\n";
    if (type == "text") {
      ASSIGN_OR_RETURN(const std::string text, part.Text("text"));
      joined += text;
    } else {
      absl::StrAppend(&joined, "[Unsupported ", type, "]");
    }
  }
  return joined;
}

absl::StatusOr<std::string> ReadContent(const Fields& message, const std::string& role) {
  const PythonJson* content = message.Find("content");
  if (role == "tool" && content != nullptr && content->is_array()) {
    return JoinParts(message, content->elements);
  }
  if (content == nullptr) {
    const bool is_null = message.object.Find("content") != nullptr;
    const bool may_be_null = role != "user" && role != "tool" && role != "latest_reminder";
    if (is_null && !may_be_null) return message.Error("content is null");
    if (role == "latest_reminder") return message.Error("has no content");
    return std::string();
  }
  if (!content->is_string()) {
    return message.Error(role == "tool" ? "content is neither a text nor a list of parts"
                                        : "content is not a text");
  }
  return content->text;
}

absl::StatusOr<std::vector<ToolCall>> ReadToolCalls(const Fields& message) {
  std::vector<ToolCall> calls;
  ASSIGN_OR_RETURN(const std::vector<PythonJson> list, message.List("tool_calls"));
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name = absl::StrCat(message.name, ": tool call ", i);
    const Fields call{list[i], name};
    const PythonJson* function = call.Find("function");
    if (function == nullptr || !function->is_object()) return call.Error("has no function");
    const Fields called{*function, name};
    ToolCall read;
    ASSIGN_OR_RETURN(read.id, call.Text("id"));
    if (read.id.empty()) {
      ASSIGN_OR_RETURN(read.id, called.Text("id"));
    }
    ASSIGN_OR_RETURN(read.name, called.RequiredText("name"));
    ASSIGN_OR_RETURN(read.arguments, called.RequiredText("arguments"));
    calls.push_back(std::move(read));
  }
  return calls;
}

absl::StatusOr<std::vector<PythonJson>> ReadTools(const Fields& message) {
  std::vector<PythonJson> tools;
  ASSIGN_OR_RETURN(const std::vector<PythonJson> list, message.List("tools"));
  for (size_t i = 0; i < list.size(); ++i) {
    const PythonJson* function = list[i].Find("function");
    if (function == nullptr || !function->is_object()) {
      return message.Error(absl::StrCat("tool ", i, " has no function object"));
    }
    tools.push_back(*function);
  }
  return tools;
}

absl::Status CheckFieldsOfRole(const Fields& message, const Message& read) {
  const bool instructs = read.role == "system" || read.role == "developer";
  const bool has_format = message.Find("response_format") != nullptr;
  if (!instructs && (!read.tools.empty() || has_format)) {
    return message.Error(absl::StrCat("tools and response_format belong to a system or developer ",
                                      "message, not to one of ", read.role));
  }
  if (read.role != "assistant" && !read.tool_calls.empty()) {
    return message.Error(absl::StrCat("a message of ", read.role, " calls no tools"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Message> ReadMessage(const Fields& message) {
  if (!message.object.is_object()) return message.Error("is not an object");
  Message read;
  ASSIGN_OR_RETURN(read.role, message.RequiredText("role"));
  ASSIGN_OR_RETURN(read.content, ReadContent(message, read.role));
  ASSIGN_OR_RETURN(read.reasoning_content, message.Text("reasoning_content"));
  ASSIGN_OR_RETURN(read.tool_calls, ReadToolCalls(message));
  ASSIGN_OR_RETURN(read.tool_call_id, message.Text("tool_call_id"));
  ASSIGN_OR_RETURN(read.tools, ReadTools(message));
  ASSIGN_OR_RETURN(read.task, message.Text("task"));
  if (const PythonJson* format = message.Find("response_format"); format != nullptr) {
    read.response_format = *format;
  }
  if (const PythonJson* wo_eos = message.Find("wo_eos"); wo_eos != nullptr) {
    if (wo_eos->kind != PythonJson::Kind::kBool) return message.Error("wo_eos is not a boolean");
    read.wo_eos = wo_eos->IsTruthy();
  }
  RETURN_IF_ERROR(CheckFieldsOfRole(message, read));
  return read;
}

}  // namespace

absl::StatusOr<std::vector<Message>> ReadMessages(const PythonJson& list) {
  if (!list.is_array()) return absl::InvalidArgumentError("messages is not a list");
  std::vector<Message> messages;
  for (size_t i = 0; i < list.elements.size(); ++i) {
    ASSIGN_OR_RETURN(Message message, ReadMessage({list.elements[i], absl::StrCat("message ", i)}));
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace millrace::deepseek_v4
