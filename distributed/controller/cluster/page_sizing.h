// How many cache pages a group gets.
#ifndef DISTRIBUTED_CONTROLLER_CLUSTER_PAGE_SIZING_H_
#define DISTRIBUTED_CONTROLLER_CLUSTER_PAGE_SIZING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/runner_config.h"

namespace millrace {

// Of free memory, for the cache: a GPU is there for nothing else, a host's memory is.
inline constexpr double kGpuShare = 0.9;
inline constexpr double kHostShare = 0.5;

struct PageRequest {
  int32_t num_pages = 0;              // > 0: as asked, if it fits
  int64_t kv_cache_memory_bytes = 0;  // > 0: of each rank; 0: a share of what is free
  double memory_utilization = 0;      // that share; 0: kGpuShare or kHostShare
  int32_t page_tokens = 16;
  int32_t max_model_len = 0;
};

struct RankRoom {
  std::string host;  // for messages
  // Of the memory that the cache will lie in, on that host; "": the host's own. Ranks with the same
  // report the same free bytes and divide them.
  std::string memory_id;
  RankMemory memory;
};

// The smallest rank decides. ResourceExhausted, naming the rank, what is missing and the flags to
// change, when that is less than was asked for, or than one sequence of max_model_len needs.
absl::StatusOr<int32_t> SizePages(const std::vector<RankRoom>& ranks, const PageRequest& request);

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_CLUSTER_PAGE_SIZING_H_
