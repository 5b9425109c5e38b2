// Conversations and tools as files in OpenAI's format.
#ifndef TOOLS_CLIENT_CONVERSATION_H_
#define TOOLS_CLIENT_CONVERSATION_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/wire/client_request.h"

namespace millrace {

// A JSON list of messages. What is neither role nor text goes along as further fields.
// InvalidArgument naming the message.
absl::StatusOr<ChatPrompt> ReadConversation(std::string_view json);

// Gives a JSON list of tools to the system message, which is made if there is none.
// InvalidArgument when it is no list, or the message has tools already.
absl::Status AddTools(std::string_view json, ChatPrompt& chat);

}  // namespace millrace

#endif  // TOOLS_CLIENT_CONVERSATION_H_
