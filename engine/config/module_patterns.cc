#include "engine/config/module_patterns.h"

#include <fnmatch.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/config/json_fields.h"

namespace millrace {
namespace {

constexpr std::string_view kRegexMark = "re:";
// Far beyond what a module's name needs; patterns come from strangers.
constexpr uint32_t kMatchLimit = 100'000;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

bool IsRegex(const ModulePatterns& patterns, std::string_view pattern) {
  return patterns.syntax == PatternSyntax::kRegex &&
         pattern.substr(0, kRegexMark.size()) == kRegexMark;
}

// Null where it is malformed; then `error` and `at` say why.
Code Compile(std::string_view pattern, int& error, size_t& at) {
  pattern.remove_prefix(kRegexMark.size());
  return Code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                            PCRE2_ANCHORED, &error, &at, nullptr));
}

bool RegexMatches(std::string_view pattern, const std::string& module) {
  int error = 0;
  size_t at = 0;
  const Code code = Compile(pattern, error, at);
  if (code == nullptr) return false;
  pcre2_match_context* const context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(context, kMatchLimit);
  pcre2_match_data* const data = pcre2_match_data_create(1, nullptr);
  const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(module.data()),
                                module.size(), 0, 0, data, context);
  pcre2_match_data_free(data);
  pcre2_match_context_free(context);
  return found >= 0;
}

// "mlp.up_proj" in "model.layers.0.mlp.up_proj", not "up" in it.
bool HasParts(const std::string& module, const std::string& parts) {
  if (parts.empty()) return false;
  return absl::StrCat(".", module, ".").find(absl::StrCat(".", parts, ".")) != std::string::npos;
}

}  // namespace

absl::Status CheckPatterns(const ModulePatterns& patterns) {
  for (const std::string& pattern : patterns.patterns) {
    if (!IsRegex(patterns, pattern)) continue;
    int error = 0;
    size_t at = 0;
    if (Compile(pattern, error, at) != nullptr) continue;
    PCRE2_UCHAR text[128] = {};
    pcre2_get_error_message(error, text, sizeof(text));
    return absl::InvalidArgumentError(absl::StrCat(
        Quoted(pattern), " is no regular expression: ", reinterpret_cast<const char*>(text), " at ",
        at));
  }
  return absl::OkStatus();
}

bool MatchesModule(const ModulePatterns& patterns, const std::string& module) {
  for (const std::string& pattern : patterns.patterns) {
    if (patterns.syntax == PatternSyntax::kRegex) {
      const bool regex = IsRegex(patterns, pattern);
      if (regex ? RegexMatches(pattern, module) : pattern == module) return true;
    } else if (HasParts(module, pattern) || fnmatch(pattern.c_str(), module.c_str(), 0) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace millrace
