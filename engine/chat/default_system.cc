#include "engine/chat/default_system.h"

#include <optional>
#include <string_view>

namespace millrace {
namespace {

constexpr std::string_view kHead = "<|im_start|>system";
constexpr std::string_view kEnd = "<|im_end|>";

// What a backslash and `c` stand for in a Jinja string; none for what templates do not use.
std::optional<char> Unescaped(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return std::nullopt;
  }
}

// The rest of the string literal in which `source` is at `begin`.
std::optional<std::string> RestOfLiteral(std::string_view source, size_t begin, char quote) {
  std::string text;
  for (size_t i = begin; i < source.size(); ++i) {
    if (source[i] == quote) return text;
    if (source[i] != '\\') {
      text += source[i];
      continue;
    }
    if (++i == source.size()) break;
    const std::optional<char> c = Unescaped(source[i]);
    if (!c.has_value()) break;
    text += *c;
  }
  return std::nullopt;
}

// The text from `begin` to the next tag or expression of the template.
std::string RestOfText(std::string_view source, size_t begin) {
  return std::string(source.substr(begin, source.find('{', begin) - begin));
}

// The message of a block whose head ends at `begin`, if one text holds it to its end.
std::optional<std::string> MessageAt(std::string_view source, size_t begin) {
  const size_t head = begin - kHead.size();
  const char before = head > 0 ? source[head - 1] : '\0';
  const bool quoted = before == '\'' || before == '"';
  const std::optional<std::string> text =
      quoted ? RestOfLiteral(source, begin, before) : RestOfText(source, begin);
  if (!text.has_value() || text->empty() || text->front() != '\n') return std::nullopt;
  const size_t end = text->find(kEnd);
  if (end == std::string::npos) return std::nullopt;
  return text->substr(1, end - 1);
}

}  // namespace

std::string DefaultSystem(const std::string& source) {
  for (size_t head = source.find(kHead); head != std::string::npos;
       head = source.find(kHead, head + 1)) {
    if (const auto message = MessageAt(source, head + kHead.size())) return *message;
  }
  return "";
}

}  // namespace millrace
