#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/paged_attention/paged_attention_impl.h"

namespace millrace {
namespace {

absl::Status Refuse(const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat("PlanPagedAttention: ", message));
}

absl::Status CheckShape(const PagedAttentionShape& s) {
  if (s.kv_heads <= 0 || s.q_heads <= 0 || s.q_heads % s.kv_heads != 0) {
    return Refuse(
        absl::StrCat("q_heads = ", s.q_heads, ", want a multiple of kv_heads = ", s.kv_heads));
  }
  if (s.q_heads / s.kv_heads > kAttentionTileRows) {
    return Refuse(absl::StrCat(s.q_heads, " query heads over ", s.kv_heads,
                               " kv heads, want at most ", kAttentionTileRows, " on each"));
  }
  if (s.head_dim <= 0 || s.head_dim % 8 != 0 || s.head_dim > kAttentionMaxHeadDim) {
    return Refuse(absl::StrCat("head_dim = ", s.head_dim, ", want a multiple of 8 up to ",
                               kAttentionMaxHeadDim));
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(absl::Span<const int32_t> q_start, absl::Span<const int32_t> kv_len) {
  if (q_start.size() != kv_len.size() + 1) {
    return Refuse(
        absl::StrCat("q_start has ", q_start.size(), " elements, want ", kv_len.size() + 1));
  }
  if (q_start[0] != 0) return Refuse(absl::StrCat("q_start[0] = ", q_start[0], ", want 0"));
  for (size_t b = 0; b < kv_len.size(); ++b) {
    const int64_t queries = int64_t{q_start[b + 1]} - q_start[b];
    if (queries < 0) {
      return Refuse(
          absl::StrCat("q_start[", b + 1, "] = ", q_start[b + 1], ", below the one before"));
    }
    if (queries > kv_len[b]) {
      return Refuse(absl::StrCat("sequence ", b, " has ", queries, " queries and kv_len ",
                                 kv_len[b], ", which counts them"));
    }
  }
  return absl::OkStatus();
}

// Keys of each part of a lone tile of `rows` that sees `keys`.
int32_t SplitKeys(int32_t rows, int32_t keys) {
  const int32_t splits = std::clamp(kAttentionMaxPartialRows / rows, 1, kAttentionMaxSplits);
  const int32_t even = (keys + splits - 1) / splits;
  const int32_t blocks = (even + kAttentionBlockKeys - 1) / kAttentionBlockKeys;
  return std::max(kAttentionMinSplitKeys, blocks * kAttentionBlockKeys);
}

void AddTile(PagedAttentionItem tile, int32_t rows, int32_t split_keys, PagedAttentionPlan& plan) {
  const int32_t keys = tile.kv_end;
  if (split_keys >= keys) {
    plan.items.push_back(tile);
    return;
  }
  PagedAttentionJoin join{.sequence = tile.sequence,
                          .queries = tile.q_end,
                          .splits = (keys + split_keys - 1) / split_keys,
                          .partial_row = plan.partial_rows};
  for (int32_t begin = 0; begin < keys; begin += split_keys) {
    tile.kv_begin = begin;
    tile.kv_end = std::min(begin + split_keys, keys);
    tile.partial_row = plan.partial_rows;
    plan.partial_rows += rows;
    plan.items.push_back(tile);
  }
  plan.joins.push_back(join);
}

void AddSequence(int32_t sequence, int32_t queries, int32_t keys, PagedAttentionPlan& plan) {
  const int32_t group = plan.shape.q_heads / plan.shape.kv_heads;
  const int32_t tile_queries = kAttentionTileRows / group;
  const bool lone = queries <= tile_queries;
  for (int32_t begin = 0; begin < queries; begin += tile_queries) {
    PagedAttentionItem tile{.sequence = sequence, .q_begin = begin};
    tile.q_end = std::min(begin + tile_queries, queries);
    tile.kv_end = keys - queries + tile.q_end;  // what the tile's last query sees
    const int32_t rows = (tile.q_end - tile.q_begin) * group;
    AddTile(tile, rows, lone ? SplitKeys(rows, keys) : tile.kv_end, plan);
  }
}

int64_t Cost(const PagedAttentionItem& item) {
  return int64_t{item.q_end - item.q_begin + 1} * (item.kv_end - item.kv_begin);
}

void PlanCpu(PagedAttentionPlan& plan) {
  for (size_t b = 0; b < plan.kv_len.size(); ++b) {
    AddSequence(static_cast<int32_t>(b), plan.q_start[b + 1] - plan.q_start[b], plan.kv_len[b],
                plan);
  }
  // Threads take items in order; expensive ones last would leave the others idle at the end.
  std::stable_sort(
      plan.items.begin(), plan.items.end(),
      [](const PagedAttentionItem& a, const PagedAttentionItem& b) { return Cost(a) > Cost(b); });
}

}  // namespace

absl::StatusOr<PagedAttentionTarget> PagedAttentionTargetOf(const Device& device) {
  if (device.type() == DeviceType::kCpu) return PagedAttentionTarget{};
  ASSIGN_OR_RETURN(const DeviceProperties properties, device.Properties());
  return PagedAttentionTarget{.device = device.type(),
                              .multiprocessors = properties.multiprocessors,
                              .compute_capability = properties.compute_capability};
}

absl::Status PlanPagedAttention(const PagedAttentionShape& shape,
                                const PagedAttentionTarget& target,
                                absl::Span<const int32_t> q_start, absl::Span<const int32_t> kv_len,
                                PagedAttentionPlan& plan) {
  RETURN_IF_ERROR(CheckShape(shape));
  RETURN_IF_ERROR(CheckLengths(q_start, kv_len));
  plan.shape = shape;
  plan.target = target;
  plan.q_start.assign(q_start.begin(), q_start.end());
  plan.kv_len.assign(kv_len.begin(), kv_len.end());
  plan.items.clear();
  plan.joins.clear();
  plan.partial_rows = 0;
  plan.decode_queries = 0;
  plan.decode.clear();
  plan.prefill.clear();
  plan.hopper.clear();
  plan.layout = {};
  if (target.device == DeviceType::kCuda) {
    PlanPagedAttentionCuda(plan);
  } else {
    PlanCpu(plan);
  }
  return absl::OkStatus();
}

int64_t PagedAttentionPartialRowBytes(const PagedAttentionShape& shape) {
  return (int64_t{shape.head_dim} + 2) * static_cast<int64_t>(sizeof(float));
}

}  // namespace millrace
