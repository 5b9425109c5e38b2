// inspect DIR: prints the tensors of a checkpoint folder.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "engine/weights/checkpoint.h"
#include "tools/weights/inspect_table.h"

namespace {

// `bazel run` starts in its own folder; a relative path means the user's.
std::string UserPath(const std::string& path) {
  const char* base = std::getenv("BUILD_WORKING_DIRECTORY");
  if (base == nullptr || path.empty() || path[0] == '/') return path;
  return absl::StrCat(base, "/", path);
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("inspect DIR\nPrints the tensors of a checkpoint folder.");
  const std::vector<char*> args = absl::ParseCommandLine(argc, argv);
  if (args.size() != 2) {
    std::cerr << "usage: inspect DIR\n";
    return 2;
  }
  const absl::StatusOr<std::unique_ptr<millrace::Checkpoint>> checkpoint =
      millrace::Checkpoint::Open(UserPath(args[1]));
  if (!checkpoint.ok()) {
    std::cerr << "inspect: " << checkpoint.status().message() << "\n";
    return 1;
  }
  std::cout << millrace::InspectTable(**checkpoint);
  return 0;
}
