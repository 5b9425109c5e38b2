// Which rank of a tensor-parallel group holds which rows, columns and heads. Pure functions.
#ifndef ENGINE_PARALLEL_SHARD_H_
#define ENGINE_PARALLEL_SHARD_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace {

// [begin, end)
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// Part `index` of [0, n) cut into `parts` contiguous ranges as equal as can be: the first n % parts
// have one more. REQUIRES: n >= 0, 0 <= index < parts.
Range BalancedRange(int64_t n, int32_t parts, int32_t index);

// The part that holds element `i`. REQUIRES: 0 <= i < n.
int32_t BalancedOwner(int64_t n, int32_t parts, int64_t i);

// BalancedRange(n, parts, r).size() for every r.
std::vector<int64_t> BalancedSizes(int64_t n, int32_t parts);

// Attention heads of one rank. q.size() is a multiple of kv.size(), and local query head i reads
// local KV head i / (q.size() / kv.size()).
struct HeadShard {
  Range q;
  Range kv;
};

// KV heads >= ranks: KV heads contiguous and balanced, each with all its query heads.
// KV heads < ranks: KV head k is copied to a contiguous run of ranks, which divide its query heads.
// InvalidArgument, with the reason, when num_kv_heads does not divide num_q_heads or when a rank
// would hold no query head. REQUIRES: 0 <= rank < tp.
absl::StatusOr<HeadShard> ShardHeads(int64_t num_q_heads, int64_t num_kv_heads, int32_t tp,
                                     int32_t rank);

}  // namespace millrace

#endif  // ENGINE_PARALLEL_SHARD_H_
