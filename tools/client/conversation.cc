#include "tools/client/conversation.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/chat/deepseek_v4/python_json.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using deepseek_v4::JsonMember;
using deepseek_v4::PythonJson;

absl::StatusOr<PythonJson> ParseList(std::string_view json, const char* what) {
  ASSIGN_OR_RETURN(PythonJson list, PythonJson::Parse(json));
  if (!list.is_array()) return absl::InvalidArgumentError(absl::StrCat("not a list of ", what));
  return list;
}

absl::StatusOr<ChatMessage> ReadMessage(const PythonJson& object, size_t index) {
  const PythonJson* role = object.Find("role");
  if (role == nullptr || !role->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("message ", index, ": has no role"));
  }
  ChatMessage message = {.role = role->text, .content = ""};
  PythonJson fields;
  fields.kind = PythonJson::Kind::kObject;
  for (const JsonMember& member : object.members) {
    if (member.key == "role") continue;
    if (member.key == "content" && member.value.is_string()) {
      message.content = member.value.text;
    } else {
      fields.members.push_back(member);
    }
  }
  if (!fields.members.empty()) message.fields_json = fields.Dump();
  return message;
}

}  // namespace

absl::StatusOr<ChatPrompt> ReadConversation(std::string_view json) {
  ASSIGN_OR_RETURN(const PythonJson list, ParseList(json, "messages"));
  ChatPrompt chat;
  for (size_t i = 0; i < list.elements.size(); ++i) {
    ASSIGN_OR_RETURN(ChatMessage message, ReadMessage(list.elements[i], i));
    chat.push_back(std::move(message));
  }
  if (chat.empty()) return absl::InvalidArgumentError("the conversation holds no message");
  return chat;
}

absl::Status AddTools(std::string_view json, ChatPrompt& chat) {
  ASSIGN_OR_RETURN(PythonJson tools, ParseList(json, "tools"));
  if (chat.empty() || chat.front().role != "system") {
    chat.insert(chat.begin(), ChatMessage{.role = "system", .content = ""});
  }
  PythonJson fields;
  fields.kind = PythonJson::Kind::kObject;
  if (!chat.front().fields_json.empty()) {
    ASSIGN_OR_RETURN(fields, PythonJson::Parse(chat.front().fields_json));
  }
  if (fields.Find("tools") != nullptr) {
    return absl::InvalidArgumentError("the system message has tools already");
  }
  fields.members.push_back({"tools", std::move(tools)});
  chat.front().fields_json = fields.Dump();
  return absl::OkStatus();
}

}  // namespace millrace
