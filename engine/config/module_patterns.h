// Lists of modules ("model.layers.0.mlp.up_proj") as the quantisation formats write them.
#ifndef ENGINE_CONFIG_MODULE_PATTERNS_H_
#define ENGINE_CONFIG_MODULE_PATTERNS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace millrace {

enum class PatternSyntax : uint8_t {
  // compressed-tensors: a whole name, or "re:" and a regular expression that matches from the
  // name's begin, not necessarily to its end.
  kRegex,
  // ModelOpt and `fp8`: parts of a name, whole between its dots ("lm_head", "layers.0.mlp"), or
  // with *, ? or [] a glob of the whole name.
  kGlob,
};

struct ModulePatterns {
  PatternSyntax syntax = PatternSyntax::kGlob;
  std::vector<std::string> patterns;
};

// InvalidArgument, quoting the pattern and where it breaks, unless all can be matched.
absl::Status CheckPatterns(const ModulePatterns& patterns);

// Whether one of them matches. A regular expression that takes too long counts as no match.
// REQUIRES: CheckPatterns() found nothing. Any thread.
bool MatchesModule(const ModulePatterns& patterns, const std::string& module);

}  // namespace millrace

#endif  // ENGINE_CONFIG_MODULE_PATTERNS_H_
