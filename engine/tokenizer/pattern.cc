#include "engine/tokenizer/pattern.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace {

absl::StatusOr<Pattern> Pattern::FromJson(const JsonRef& spec) {
  RETURN_IF_ERROR(spec.CheckObject());
  if (const JsonRef literal = spec.Member("String"); !literal.is_null()) {
    ASSIGN_OR_RETURN(std::string text, literal.String());
    if (text.empty()) return literal.Error("an empty pattern matches nothing");
    return OfLiteral(std::move(text));
  }
  const JsonRef regex = spec.Member("Regex");
  if (regex.is_null()) return spec.Error("want \"String\" or \"Regex\"");
  ASSIGN_OR_RETURN(const std::string text, regex.String());
  auto pattern = OfRegex(text);
  if (!pattern.ok()) return regex.Error(std::string(pattern.status().message()));
  return pattern;
}

absl::StatusOr<Pattern> Pattern::OfRegex(std::string_view pattern) {
  Pattern result;
  ASSIGN_OR_RETURN(result.regex_, Regex::Compile(pattern));
  return result;
}

Pattern Pattern::OfLiteral(std::string literal) {
  Pattern result;
  result.literal_ = std::move(literal);
  return result;
}

Pattern Pattern::OfCharacters(bool (*predicate)(char32_t)) {
  Pattern result;
  result.predicate_ = predicate;
  return result;
}

absl::Status Pattern::ForEachMatch(std::string_view text, RegexScratch* scratch,
                                   absl::FunctionRef<void(RegexMatch)> visit) const {
  if (regex_ != nullptr) {
    RegexIterator matches(*regex_, text, scratch);
    for (RegexMatch match; matches.Next(&match);) visit(match);
    return matches.status();
  }
  if (predicate_ != nullptr) {
    for (size_t pos = 0; pos < text.size();) {
      const size_t begin = pos;
      if (predicate_(NextCodePoint(text, &pos))) visit({begin, pos});
    }
    return absl::OkStatus();
  }
  for (size_t at = text.find(literal_); at != std::string_view::npos;
       at = text.find(literal_, at + literal_.size())) {
    visit({at, at + literal_.size()});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReplaceAll(const Pattern& pattern, std::string_view text,
                                       std::string_view content, RegexScratch* scratch) {
  std::string out;
  size_t copied = 0;
  RETURN_IF_ERROR(pattern.ForEachMatch(text, scratch, [&](RegexMatch match) {
    out.append(text.substr(copied, match.begin - copied));
    out.append(content);
    copied = match.end;
  }));
  out.append(text.substr(copied));
  return out;
}

}  // namespace millrace
