#include "engine/chat/chat_template.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/chat/default_system.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// The default of Llama 3.1's and 3.2's own template when it is given no date.
constexpr char kLlama31Preamble[] =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Python's idea of white space, which is what Jinja trims.
bool IsTrimmed(char32_t c) { return IsWhitespace(c) || (c >= 0x1C && c <= 0x1F); }

// REQUIRES (both): valid UTF-8.
std::string_view TrimmedEnd(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && IsTrimmed(CodePointBefore(text, end))) {
    --end;
    while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // to its first byte
  }
  return text.substr(0, end);
}

std::string_view Trimmed(std::string_view text) {
  size_t begin = 0;
  for (size_t next = 0; next < text.size(); begin = next) {
    if (!IsTrimmed(NextCodePoint(text, &next))) break;
  }
  return TrimmedEnd(text.substr(begin));
}

absl::Status CheckMessages(absl::Span<const ChatMessage> messages) {
  if (messages.empty()) return absl::InvalidArgumentError("the conversation holds no message");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      return absl::InvalidArgumentError(
          absl::StrCat("message ", i, ": the role '", role, "' is not system, user or assistant"));
    }
    if (FindInvalidUtf8(messages[i].content) != std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("message ", i, ": the content is not valid UTF-8"));
    }
    if (role == "system" && i > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("message ", i, ": only the first message may be a system message"));
    }
  }
  return absl::OkStatus();
}

void RenderChatMl(const ChatTemplate& chat, absl::Span<const ChatMessage> messages,
                  ChatWriter& out) {
  if (messages[0].role != "system" && !chat.default_system.empty()) {
    out.Control("<|im_start|>system\n");
    out.Control(chat.default_system);
    out.Control("<|im_end|>\n");
  }
  for (const ChatMessage& m : messages) {
    out.Control(absl::StrCat("<|im_start|>", m.role, "\n"));
    out.Message(m.content);
    out.Control("<|im_end|>\n");
  }
  out.Control("<|im_start|>assistant\n");
}

void Llama3Header(const std::string& role, ChatWriter& out) {
  out.Control(absl::StrCat("<|start_header_id|>", role, "<|end_header_id|>\n\n"));
}

void RenderLlama3(const ChatTemplate& chat, absl::Span<const ChatMessage> messages,
                  ChatWriter& out) {
  out.Control("<|begin_of_text|>");
  if (messages[0].role != "system" && chat.always_system) {
    Llama3Header("system", out);
    out.Control(chat.system_preamble);
    out.Control("<|eot_id|>");
  }
  for (const ChatMessage& m : messages) {
    Llama3Header(m.role, out);
    if (m.role == "system") out.Control(chat.system_preamble);
    out.Message(Trimmed(m.content));
    out.Control("<|eot_id|>");
  }
  Llama3Header("assistant", out);
}

// The model's template trims the system block and the first user message as one text.
void Llama2System(const std::string& system, const std::string& user, ChatWriter& out) {
  out.Control("<<SYS>>\n");
  out.Message(system);
  out.Control("\n<</SYS>>");
  const std::string_view rest = TrimmedEnd(user);
  if (!rest.empty()) out.Control("\n\n");
  out.Message(rest);
}

absl::Status RenderLlama2(absl::Span<const ChatMessage> messages, ChatWriter& out) {
  const bool has_system = messages[0].role == "system";
  const absl::Span<const ChatMessage> turns = messages.subspan(has_system ? 1 : 0);
  if (turns.empty() || turns.back().role != "user") {
    return absl::InvalidArgumentError("this model's conversations end with a user message");
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].role != (i % 2 == 0 ? "user" : "assistant")) {
      return absl::InvalidArgumentError(
          absl::StrCat("message ", i + (has_system ? 1 : 0),
                       ": this model's conversations alternate between user and assistant"));
    }
    if (i % 2 == 1) {
      out.Control(" ");
      out.Message(Trimmed(turns[i].content));
      out.Control(" </s>");
      continue;
    }
    out.Control("<s>[INST] ");
    if (i == 0 && has_system) {
      Llama2System(messages[0].content, turns[0].content, out);
    } else {
      out.Message(Trimmed(turns[i].content));
    }
    out.Control(" [/INST]");
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::Recognise(const TokenizerSettings& settings) {
  const std::string& source = settings.chat_template;
  if (Contains(source, "<|start_header_id|>")) {
    const bool dated = Contains(source, "Cutting Knowledge Date");
    return ChatTemplate{.format = ChatFormat::kLlama3,
                        .system_preamble = dated ? kLlama31Preamble : "",
                        .always_system = dated};
  }
  if (Contains(source, "<|im_start|>")) {
    return ChatTemplate{.format = ChatFormat::kChatMl, .default_system = DefaultSystem(source)};
  }
  if (Contains(source, "[INST]") && Contains(source, "<<SYS>>")) {
    return ChatTemplate{.format = ChatFormat::kLlama2};
  }
  return std::nullopt;
}

absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat,
                                        absl::Span<const ChatMessage> messages) {
  RETURN_IF_ERROR(CheckMessages(messages));
  ChatWriter out;
  switch (chat.format) {
    case ChatFormat::kChatMl:
      RenderChatMl(chat, messages, out);
      break;
    case ChatFormat::kLlama3:
      RenderLlama3(chat, messages, out);
      break;
    case ChatFormat::kLlama2:
      RETURN_IF_ERROR(RenderLlama2(messages, out));
      break;
  }
  return out.Take();
}

absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatTemplate& chat,
                                                const Tokenizer& tokenizer,
                                                absl::Span<const ChatMessage> messages) {
  ASSIGN_OR_RETURN(const RenderedChat rendered, RenderChat(chat, messages));
  EncodeOptions options;
  options.literal_spans = rendered.message_spans;
  return tokenizer.Encode(rendered.text, options);
}

}  // namespace millrace
