// How much memory this process may use: the machine's, or its control group's where that is less.
#ifndef KERNELS_CPU_MEMORY_INFO_H_
#define KERNELS_CPU_MEMORY_INFO_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace millrace {

struct MemoryInfo {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;  // without swapping; page cache counts as free
};

// Reads proc/meminfo, proc/self/cgroup and the control groups' limits below `root` (a test's own
// folder). Unavailable, naming the file, when proc/meminfo cannot be read or understood; control
// groups that cannot be read set no limit. Any thread.
absl::StatusOr<MemoryInfo> ReadMemoryInfo(const std::string& root = "/");

}  // namespace millrace

#endif  // KERNELS_CPU_MEMORY_INFO_H_
