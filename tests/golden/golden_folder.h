// Where the checkpoints with reference outputs are.
#ifndef TESTS_GOLDEN_GOLDEN_FOLDER_H_
#define TESTS_GOLDEN_GOLDEN_FOLDER_H_

#include <filesystem>

namespace millrace {

// ../shared/golden beside the workspace; empty where there is none. The test's data, which are
// links into the workspace, must have tests/golden/README.md.
inline std::filesystem::path GoldenFolder() {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::canonical("tests/golden/README.md", error);
  if (error) return {};
  const std::filesystem::path workspace = here.parent_path().parent_path().parent_path();
  const std::filesystem::path folder = workspace.parent_path() / "shared" / "golden";
  return std::filesystem::is_directory(folder, error) ? folder : std::filesystem::path();
}

}  // namespace millrace

#endif  // TESTS_GOLDEN_GOLDEN_FOLDER_H_
