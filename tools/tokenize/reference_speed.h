// How fast the Python tokenizers library encodes the same texts on this machine.
#ifndef TOOLS_TOKENIZE_REFERENCE_SPEED_H_
#define TOOLS_TOKENIZE_REFERENCE_SPEED_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace {

struct ReferenceSpeed {
  double mb_per_s = 0;
  std::string version;
};

// Runs `python` (a path or a name to look up) on one thread over `texts`, `passes` times after one
// to warm up. NotFound when that Python has no tokenizers library.
absl::StatusOr<ReferenceSpeed> MeasureReference(const std::string& python,
                                                const std::string& tokenizer_path,
                                                const std::vector<std::string>& texts, int passes);

}  // namespace millrace

#endif  // TOOLS_TOKENIZE_REFERENCE_SPEED_H_
