#include "engine/config/fp8_config.h"

namespace millrace {

std::optional<Fp8Scheme> Fp8Config::SchemeOf(const std::string& module) const {
  if (MatchesModule(excluded, module)) return std::nullopt;
  for (const Fp8Group& group : groups) {
    if (!group.targets.has_value() || MatchesModule(*group.targets, module)) return group.scheme;
  }
  return std::nullopt;
}

}  // namespace millrace
