#include "engine/chat/chat_template.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// The default of Llama 3.1's and 3.2's own template when it is given no date.
constexpr char kLlama31Preamble[] =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// The literal system message that a ChatML template puts before a conversation without one.
std::string DefaultSystem(const std::string& source) {
  constexpr std::string_view kHead = "<|im_start|>system";
  const size_t head = source.find(kHead);
  if (head == std::string::npos) return "";
  size_t begin = head + kHead.size();
  if (source.compare(begin, 2, "\\n") == 0) {
    begin += 2;
  } else if (source.compare(begin, 1, "\n") == 0) {
    begin += 1;
  } else {
    return "";
  }
  const size_t end = source.find("<|im_end|>", begin);
  if (end == std::string::npos) return "";
  const std::string text = source.substr(begin, end - begin);
  // Quotes, braces or escapes mean that it is computed, not written down.
  return text.find_first_of("'\"{}\\") == std::string::npos ? text : "";
}

std::string Trimmed(const std::string& text) {
  constexpr char kSpace[] = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

class Writer {
 public:
  void Control(std::string_view text) { chat_.text += text; }
  void Message(std::string_view text) {
    if (text.empty()) return;
    chat_.message_spans.push_back({chat_.text.size(), chat_.text.size() + text.size()});
    chat_.text += text;
  }
  RenderedChat Take() { return std::move(chat_); }

 private:
  RenderedChat chat_;
};

absl::Status CheckMessages(absl::Span<const ChatMessage> messages) {
  if (messages.empty()) return absl::InvalidArgumentError("the conversation holds no message");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      return absl::InvalidArgumentError(
          absl::StrCat("message ", i, ": the role '", role, "' is not system, user or assistant"));
    }
    if (role == "system" && i > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("message ", i, ": only the first message may be a system message"));
    }
  }
  return absl::OkStatus();
}

void RenderChatMl(const ChatTemplate& chat, absl::Span<const ChatMessage> messages, Writer& out) {
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

void Llama3Header(const std::string& role, Writer& out) {
  out.Control(absl::StrCat("<|start_header_id|>", role, "<|end_header_id|>\n\n"));
}

void RenderLlama3(const ChatTemplate& chat, absl::Span<const ChatMessage> messages, Writer& out) {
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

absl::Status RenderLlama2(absl::Span<const ChatMessage> messages, Writer& out) {
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
      out.Control("<<SYS>>\n");
      out.Message(messages[0].content);
      out.Control("\n<</SYS>>\n\n");
    }
    out.Message(i == 0 && has_system ? turns[i].content : Trimmed(turns[i].content));
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
  Writer out;
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
