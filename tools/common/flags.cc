#include "tools/common/flags.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

bool IsFlag(const std::string& name) { return absl::FindCommandLineFlag(name) != nullptr; }

// Flags of the tools themselves, not of libraries.
bool FromTools(absl::string_view file) {
  return absl::StartsWith(file, "tools/") || absl::StrContains(file, "/tools/");
}

}  // namespace

std::string NormalizeFlag(std::string_view argument, const FlagAliases& aliases) {
  const size_t dashes = std::min(argument.find_first_not_of('-'), size_t{2});
  const bool is_flag = (dashes == 1 || dashes == 2) && argument.size() > dashes;
  const bool is_number =
      dashes == 1 && argument.size() > 1 && argument[1] >= '0' && argument[1] <= '9';
  if (!is_flag || is_number) return std::string(argument);
  const size_t equals = std::min(argument.find('='), argument.size());
  std::string name(argument.substr(dashes, equals - dashes));
  std::replace(name.begin(), name.end(), '-', '_');
  for (const auto& [alias, flag] : aliases) {
    if (name == alias) name = flag;
  }
  if (absl::StartsWith(name, "no_") && !IsFlag(name)) {
    std::string positive = name.substr(3);
    for (const auto& [alias, flag] : aliases) {
      if (positive == alias) positive = flag;
    }
    if (IsFlag(positive)) name = absl::StrCat("no", positive);
  }
  return absl::StrCat("--", name, std::string(argument.substr(equals)));
}

std::vector<std::string> ParseFlags(int argc, char** argv, const FlagAliases& aliases) {
  absl::FlagsUsageConfig config;
  config.contains_helpshort_flags = FromTools;
  config.contains_help_flags = FromTools;
  absl::SetFlagsUsageConfig(config);
  std::vector<std::string> normal;
  bool flags_over = false;
  for (int i = 0; i < argc; ++i) {
    flags_over = flags_over || (i > 0 && std::string_view(argv[i]) == "--");
    normal.push_back(i == 0 || flags_over ? argv[i] : NormalizeFlag(argv[i], aliases));
  }
  std::vector<char*> pointers;
  for (std::string& argument : normal) pointers.push_back(argument.data());
  const std::vector<char*> left =
      absl::ParseCommandLine(static_cast<int>(pointers.size()), pointers.data());
  return std::vector<std::string>(left.begin() + 1, left.end());
}

std::vector<std::string> NonDefaultFlags() {
  std::vector<std::string> set;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!FromTools(flag->Filename()) || flag->CurrentValue() == flag->DefaultValue()) continue;
    const bool secret = absl::StrContains(name, "secret") || absl::StrContains(name, "key");
    set.push_back(absl::StrCat(name, "=", secret ? "***" : flag->CurrentValue()));
  }
  std::sort(set.begin(), set.end());
  return set;
}

std::string PathFromUser(const std::string& path) {
  if (path.empty() || std::filesystem::path(path).is_absolute()) return path;
  const char* base = std::getenv("BUILD_WORKING_DIRECTORY");
  if (base == nullptr) return path;
  return (std::filesystem::path(base) / path).lexically_normal().string();
}

}  // namespace millrace
