// Patterns of tokenizer.json are written for Oniguruma (Ruby syntax); PCRE2 reads another dialect.
#ifndef ENGINE_TOKENIZER_REGEX_SYNTAX_H_
#define ENGINE_TOKENIZER_REGEX_SYNTAX_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace millrace {

// `pattern` (valid UTF-8) rewritten so that PCRE2, compiled with UTF, UCP and MULTILINE, matches
// what Oniguruma matches. What has no equal in PCRE2 is refused by name: nested and intersected
// character classes, absent operators, negated \w and \h inside a class, unknown escapes.
absl::StatusOr<std::string> OnigurumaToPcre2(std::string_view pattern);

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_REGEX_SYNTAX_H_
