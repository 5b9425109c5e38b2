// Command lines of the tools: users paste vLLM's spelling (--max-model-len), Abseil wants
// --max_model_len. Main thread, at the start of main().
#ifndef TOOLS_COMMON_FLAGS_H_
#define TOOLS_COMMON_FLAGS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

// Another name of a flag, both with underscores: {"tp_size", "tensor_parallel_size"}.
using FlagAliases = std::vector<std::pair<std::string, std::string>>;

// One argument as Abseil reads it: in the name '-' becomes '_', aliases become their flags, and
// "no-x" becomes "nox" for a boolean flag x. Values and arguments that are no flags stay as they
// are.
std::string NormalizeFlag(std::string_view argument, const FlagAliases& aliases);

// Sets the flags from the command line and returns the arguments that are no flags. Ends the
// process with a message when a flag is unknown or its value does not parse, and after --help.
std::vector<std::string> ParseFlags(int argc, char** argv, const FlagAliases& aliases = {});

// Flags given on the command line with values other than their defaults, "name=value", by name.
// Values of flags whose name contains "secret" are masked.
std::vector<std::string> NonDefaultFlags();

// Where a relative path of the user's points: `bazel run` starts tools in another folder than the
// one the user stands in. Empty stays empty.
std::string PathFromUser(const std::string& path);

}  // namespace millrace

#endif  // TOOLS_COMMON_FLAGS_H_
