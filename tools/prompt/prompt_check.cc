#include "tools/prompt/prompt_check.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/chat/deepseek_v4/completion_parser.h"

namespace millrace {
namespace {

using deepseek_v4::Completion;
using deepseek_v4::CompletionDelta;
using deepseek_v4::ToolCall;

Difference TextDifference(std::string_view what, const std::string& have, const std::string& want) {
  if (have == want) return std::nullopt;
  const auto differ = std::mismatch(have.begin(), have.end(), want.begin(), want.end());
  const auto at = static_cast<size_t>(differ.first - have.begin());
  const size_t from = at > 20 ? at - 20 : 0;
  const auto part = [&](const std::string& text) {
    return absl::Utf8SafeCHexEscape(from < text.size() ? text.substr(from, 60) : "");
  };
  return absl::StrCat(std::string(what), ", byte ", at, ": have \"", part(have), "\", want \"",
                      part(want), "\"");
}

Difference CallsDifference(const std::vector<ToolCall>& have, const std::vector<ToolCall>& want) {
  for (size_t i = 0; i < std::min(have.size(), want.size()); ++i) {
    const std::string call = absl::StrCat("tool call ", i);
    if (auto d = TextDifference(call + " name", have[i].name, want[i].name)) return d;
    if (auto d = TextDifference(call + " arguments", have[i].arguments, want[i].arguments)) {
      return d;
    }
  }
  if (have.size() == want.size()) return std::nullopt;
  return absl::StrCat("have ", have.size(), " tool calls, want ", want.size());
}

void Append(CompletionDelta delta, CompletionDelta* whole) {
  whole->reasoning_content += delta.reasoning_content;
  whole->content += delta.content;
  for (ToolCall& call : delta.tool_calls) whole->tool_calls.push_back(std::move(call));
}

}  // namespace

Difference CompareRendered(const PromptCase& want) {
  const auto rendered = deepseek_v4::RenderPrompt(want.messages, want.options);
  if (!rendered.ok()) return rendered.status().ToString();
  return TextDifference("prompt", rendered->text, want.prompt);
}

Difference CompareIds(const PromptCase& want, const Tokenizer& tokenizer) {
  const auto rendered = deepseek_v4::RenderPrompt(want.messages, want.options);
  if (!rendered.ok()) return rendered.status().ToString();
  const auto ids = deepseek_v4::EncodePrompt(*rendered, tokenizer);
  if (!ids.ok()) return ids.status().ToString();
  if (*ids == want.ids) return std::nullopt;
  const auto differ = std::mismatch(ids->begin(), ids->end(), want.ids.begin(), want.ids.end());
  const auto at = static_cast<size_t>(differ.first - ids->begin());
  const auto shown = [&](const std::vector<int32_t>& list) {
    if (at >= list.size()) return std::string("the end");
    return absl::StrCat(list[at], " (", std::string(tokenizer.IdToToken(list[at])), ")");
  };
  return absl::StrCat("id ", at, ": have ", shown(*ids), ", want ", shown(want.ids));
}

Difference CompareParsed(const ParseCase& want, absl::Span<const size_t> cuts) {
  deepseek_v4::CompletionParser parser(want.mode);
  CompletionDelta given;
  const std::string_view text = want.completion;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    Append(parser.Push(text.substr(begin, cut - begin)), &given);
    begin = cut;
  }
  Append(parser.Push(text.substr(begin)), &given);
  Append(parser.Finish(), &given);
  const Completion& have = parser.completion();

  if (auto d = TextDifference("text kept", have.text, want.completion)) return d;
  if (have.malformed.empty() != want.message.has_value()) {
    return want.message.has_value() ? "refused: " + have.malformed : "not taken for malformed";
  }
  if (!want.message.has_value()) return std::nullopt;
  const ParseCase::Message& message = *want.message;
  if (auto d = TextDifference("content", have.content, message.content)) return d;
  if (auto d = TextDifference("reasoning", have.reasoning_content, message.reasoning_content)) {
    return d;
  }
  if (auto d = CallsDifference(have.tool_calls, message.tool_calls)) return d;
  if (given.content != have.content || given.reasoning_content != have.reasoning_content ||
      given.tool_calls != have.tool_calls) {
    return "what was given out on the way is not the whole";
  }
  return std::nullopt;
}

}  // namespace millrace
