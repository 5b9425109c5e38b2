#include "engine/runtime/runner_config.h"

#include <algorithm>

namespace millrace {

std::vector<int32_t> DefaultGraphSizes(int32_t max_num_seqs) {
  constexpr int32_t kLargest = 256;
  const int32_t largest = std::min(max_num_seqs, kLargest);
  std::vector<int32_t> sizes;
  for (int32_t size = 1; size < largest;) {
    sizes.push_back(size);
    size += size < 4 ? size : size < 8 ? 4 : size < 64 ? 8 : 16;
  }
  sizes.push_back(largest);
  return sizes;
}

}  // namespace millrace
