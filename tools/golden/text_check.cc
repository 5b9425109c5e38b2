#include "tools/golden/text_check.h"

#include <filesystem>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/config/parse.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

void Compare(const std::string& what, const absl::StatusOr<std::string>& got,
             const std::string& want, TextReport& report) {
  ++report.checked;
  if (got.ok() && *got == want) return;
  report.mistakes.push_back(got.ok()
                                ? absl::StrCat(what, ": \"", absl::Utf8SafeCEscape(*got),
                                               "\", want \"", absl::Utf8SafeCEscape(want), "\"")
                                : absl::StrCat(what, ": ", got.status().message()));
}

std::string IdsText(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) absl::StrAppend(&text, text.empty() ? "" : " ", id);
  return text;
}

}  // namespace

absl::StatusOr<std::optional<TextChecker>> TextChecker::Load(const std::string& model_dir) {
  const std::string path = model_dir + "/tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<TextChecker>();
  TextChecker checker;
  ASSIGN_OR_RETURN(checker.tokenizer_, Tokenizer::FromFile(path));
  ASSIGN_OR_RETURN(const TokenizerSettings settings, LoadTokenizerSettings(model_dir));
  checker.chat_ = ChatTemplate::Recognise(settings);
  return std::optional<TextChecker>(std::move(checker));
}

TextReport TextChecker::Check(const std::vector<GoldenCase>& cases) const {
  TextReport report;
  for (size_t i = 0; i < cases.size(); ++i) {
    CheckCase(cases[i], absl::StrCat("case ", i, ": "), report);
  }
  return report;
}

void TextChecker::CheckCase(const GoldenCase& c, const std::string& where,
                            TextReport& report) const {
  if (c.answer.has_value()) {
    Compare(where + "answer", tokenizer_->Decode(c.greedy, /*skip_special_tokens=*/true), *c.answer,
            report);
  }
  if (c.messages.empty()) return;
  if (!chat_.has_value()) {
    report.mistakes.push_back(where + "the folder's chat template is not a known one");
    return;
  }
  std::vector<ChatMessage> messages;
  for (const auto& [role, content] : c.messages) messages.push_back({role, content});
  if (c.text.has_value()) {
    const absl::StatusOr<RenderedChat> rendered = RenderChat(*chat_, messages);
    Compare(where + "rendered text",
            rendered.ok() ? absl::StatusOr<std::string>(rendered->text) : rendered.status(),
            *c.text, report);
  }
  const absl::StatusOr<std::vector<int32_t>> ids = EncodeChat(*chat_, *tokenizer_, messages);
  Compare(where + "prompt ids",
          ids.ok() ? absl::StatusOr<std::string>(IdsText(*ids)) : ids.status(), IdsText(c.prompt),
          report);
}

}  // namespace millrace
