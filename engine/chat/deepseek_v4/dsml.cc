#include "engine/chat/deepseek_v4/dsml.h"

#include <utility>

#include "engine/chat/deepseek_v4/python_json.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/utf8.h"

namespace millrace::deepseek_v4 {
namespace {

constexpr std::string_view kName = "name=\"";
constexpr std::string_view kText = "\" string=\"true\">";
constexpr std::string_view kJson = "\" string=\"false\">";

// What \s is in Python's patterns.
bool IsBlank(char32_t c) { return IsWhitespace(c) || (c >= 0x1C && c <= 0x1F); }

bool TakePrefix(std::string_view prefix, std::string_view* text) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

bool TakeSuffix(std::string_view suffix, std::string_view* text) {
  if (!text->ends_with(suffix)) return false;
  text->remove_suffix(suffix.size());
  return true;
}

}  // namespace

absl::StatusOr<std::vector<DsmlParameter>> ParametersOf(const std::string& arguments) {
  const auto json = PythonJson::Parse(arguments);
  if (!json.ok()) return std::vector<DsmlParameter>{{"arguments", arguments, /*is_text=*/true}};
  if (!json->is_object()) {
    return absl::InvalidArgumentError("the arguments are JSON, but not an object");
  }
  std::vector<DsmlParameter> parameters;
  for (const JsonMember& member : json->members) {
    const bool is_text = member.value.is_string();
    parameters.push_back({member.key, is_text ? member.value.text : member.value.Dump(), is_text});
  }
  return parameters;
}

std::string ArgumentsOf(absl::Span<const DsmlParameter> parameters) {
  std::string json = "{";
  for (const DsmlParameter& parameter : parameters) {
    if (json.size() > 1) json += ", ";
    AppendJsonString(parameter.name, &json);
    json += ": ";
    if (parameter.is_text) {
      AppendJsonString(parameter.value, &json);
    } else {
      json += parameter.value;
    }
  }
  return json + "}";
}

std::optional<std::string> ReadInvokeName(std::string_view text) {
  size_t begin = 0;
  for (size_t next = 0; next < text.size(); begin = next) {
    if (!IsBlank(NextCodePoint(text, &next))) break;
  }
  text.remove_prefix(begin);
  if (!TakePrefix(kName, &text)) return std::nullopt;
  // A call without parameters has an empty line instead.
  if (!TakeSuffix("\">\n\n", &text) && !TakeSuffix("\">\n", &text)) return std::nullopt;
  return std::string(text);
}

std::optional<DsmlParameter> ReadParameter(std::string_view text) {
  if (!TakePrefix(" ", &text) || !TakePrefix(kName, &text)) return std::nullopt;
  const size_t as_text = text.find(kText);
  const size_t as_json = text.find(kJson);
  if (as_text == as_json) return std::nullopt;  // neither is there
  DsmlParameter parameter;
  parameter.is_text = as_text < as_json;
  parameter.name = std::string(text.substr(0, std::min(as_text, as_json)));
  text.remove_prefix(parameter.name.size() + (parameter.is_text ? kText : kJson).size());
  // The publisher's own parser lets a line break stand before the slash.
  if (!TakeSuffix("<", &text) && !TakeSuffix("<\n", &text)) return std::nullopt;
  parameter.value = std::string(text);
  return parameter;
}

}  // namespace millrace::deepseek_v4
