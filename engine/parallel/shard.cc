#include "engine/parallel/shard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"

namespace millrace {

Range BalancedRange(int64_t n, int32_t parts, int32_t index) {
  MR_CHECK(n >= 0 && index >= 0 && index < parts);
  const int64_t base = n / parts;
  const int64_t extra = n % parts;
  const int64_t begin = index * base + std::min<int64_t>(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

int32_t BalancedOwner(int64_t n, int32_t parts, int64_t i) {
  MR_CHECK(i >= 0 && i < n && parts > 0);
  const int64_t base = n / parts;
  const int64_t extra = n % parts;
  const int64_t in_larger = extra * (base + 1);  // elements held by the parts with one more
  if (i < in_larger) return static_cast<int32_t>(i / (base + 1));
  return static_cast<int32_t>(extra + (i - in_larger) / base);
}

std::vector<int64_t> BalancedSizes(int64_t n, int32_t parts) {
  std::vector<int64_t> sizes;
  for (int32_t r = 0; r < parts; ++r) sizes.push_back(BalancedRange(n, parts, r).size());
  return sizes;
}

absl::StatusOr<HeadShard> ShardHeads(int64_t num_q_heads, int64_t num_kv_heads, int32_t tp,
                                     int32_t rank) {
  MR_CHECK(rank >= 0 && rank < tp);
  if (num_kv_heads <= 0 || num_q_heads <= 0 || num_q_heads % num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention has ", num_q_heads, " query heads over ", num_kv_heads,
        " KV heads; the number of query heads must be a positive multiple of that of KV heads"));
  }
  const int64_t group = num_q_heads / num_kv_heads;  // query heads of one KV head
  if (tp <= num_kv_heads) {
    const Range kv = BalancedRange(num_kv_heads, tp, rank);
    return HeadShard{{kv.begin * group, kv.end * group}, kv};
  }
  const int64_t most_sharing = (tp + num_kv_heads - 1) / num_kv_heads;
  if (most_sharing > group) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor parallel size ", tp, " leaves a rank without query heads: ", num_kv_heads,
        " KV heads with ", group, " query heads each support at most ", num_q_heads, " ranks"));
  }
  const int64_t kv = BalancedOwner(tp, static_cast<int32_t>(num_kv_heads), rank);
  const Range sharing =
      BalancedRange(tp, static_cast<int32_t>(num_kv_heads), static_cast<int32_t>(kv));
  const Range q = BalancedRange(group, static_cast<int32_t>(sharing.size()),
                                static_cast<int32_t>(rank - sharing.begin));
  return HeadShard{{kv * group + q.begin, kv * group + q.end}, {kv, kv + 1}};
}

}  // namespace millrace
