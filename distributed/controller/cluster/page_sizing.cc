#include "distributed/controller/cluster/page_sizing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace millrace {
namespace {

std::string GiB(double bytes) { return absl::StrFormat("%.2f GiB", bytes / (1 << 30)); }

double ShareFor(const RankRoom& rank, const PageRequest& request) {
  if (request.memory_utilization > 0) return request.memory_utilization;
  return rank.memory_id.empty() ? kHostShare : kGpuShare;
}

}  // namespace

absl::StatusOr<int32_t> SizePages(const std::vector<RankRoom>& ranks, const PageRequest& request) {
  std::map<std::pair<std::string, std::string>, int64_t> sharers;
  for (const RankRoom& rank : ranks) ++sharers[{rank.host, rank.memory_id}];
  const int64_t one_sequence =
      (int64_t{request.max_model_len} + request.page_tokens - 1) / request.page_tokens;
  const int64_t need = std::max<int64_t>({request.num_pages, one_sequence, 1});
  int64_t pages = std::numeric_limits<int32_t>::max();
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankMemory& memory = ranks[i].memory;
    const int64_t free = memory.available_bytes / sharers[{ranks[i].host, ranks[i].memory_id}];
    const bool given = request.num_pages > 0 || request.kv_cache_memory_bytes > 0;
    int64_t room =
        given ? free
              : static_cast<int64_t>(static_cast<double>(free) * ShareFor(ranks[i], request));
    if (request.num_pages == 0 && request.kv_cache_memory_bytes > 0) {
      room = std::min(room, request.kv_cache_memory_bytes);
    }
    const int64_t fits = room / memory.bytes_per_page;
    if (fits < need) {
      const double missing =
          static_cast<double>(need) * static_cast<double>(memory.bytes_per_page) -
          static_cast<double>(room);
      return absl::ResourceExhaustedError(absl::StrCat(
          "cache: rank ", i, " on ", ranks[i].host, " has room for ", fits, " pages of ",
          request.page_tokens, " tokens, want ", need, ": ", GiB(missing),
          " short. Lower --max-model-len or --num-gpu-blocks-override, or raise "
          "--kv-cache-memory-bytes or --gpu-memory-utilization"));
    }
    pages = std::min(pages, fits);
  }
  return static_cast<int32_t>(request.num_pages > 0 ? request.num_pages : pages);
}

}  // namespace millrace
