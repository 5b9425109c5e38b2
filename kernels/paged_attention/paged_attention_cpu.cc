#include <atomic>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/paged_attention/paged_attention_cpu_tile.h"
#include "kernels/paged_attention/paged_attention_impl.h"

namespace millrace {
namespace {

absl::Status CheckLengths(const PagedAttentionCall& call) {
  const auto compare = [](const char* name, const TensorView& got,
                          const std::vector<int32_t>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      if (got.as<int32_t>()[i] == want[i]) continue;
      return absl::InvalidArgumentError(absl::StrCat("PagedAttention: ", name, "[", i,
                                                     "] = ", got.as<int32_t>()[i],
                                                     ", planned with ", want[i]));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(compare("q_start", call.args.q_start, call.plan.q_start));
  return compare("kv_len", call.args.kv_len, call.plan.kv_len);
}

// Every page that the plan's sequences read must lie in the cache.
absl::Status CheckPages(const PagedAttentionCall& call) {
  const TensorView& table = call.args.page_table;
  const int64_t pages = call.args.k_cache.dim(0), page_tokens = call.args.k_cache.dim(2);
  for (size_t b = 0; b < call.plan.kv_len.size(); ++b) {
    if (call.plan.q_start[b] == call.plan.q_start[b + 1]) continue;
    const int64_t needed = (call.plan.kv_len[b] + page_tokens - 1) / page_tokens;
    const int32_t* row = table.as<int32_t>() + static_cast<int64_t>(b) * table.stride(0);
    for (int64_t i = 0; i < needed; ++i) {
      if (row[i] >= 0 && row[i] < pages) continue;
      return absl::InvalidArgumentError(absl::StrCat("PagedAttention: page_table[", b, ", ", i,
                                                     "] = ", row[i], ", want 0 to ", pages - 1));
    }
  }
  return absl::OkStatus();
}

const AttentionKernels& KernelsFor(CpuIsa isa, int64_t head_dim) {
  if (isa == CpuIsa::kAvx512 && head_dim % kAttentionAvx512.lanes == 0) return kAttentionAvx512;
  return isa == CpuIsa::kScalar ? kAttentionScalar : kAttentionAvx2;
}

char* Element(const TensorView& t, int64_t i, int64_t j) {
  return t.as<char>() + (i * t.stride(0) + j * t.stride(1)) * DTypeBytes(t.dtype);
}

// One call with its workspace.
class AttentionRun final {
 public:
  AttentionRun(const PagedAttentionCall& call, float* partials, float* scratch)
      : plan_(call.plan),
        args_(call.args),
        partials_(partials),
        scratch_(scratch),
        group_(plan_.shape.q_heads / plan_.shape.kv_heads) {}

  // Work unit w is item w / kv_heads for kv head w % kv_heads.
  AttentionTile Tile(int64_t w, int thread) const {
    const PagedAttentionItem& item = plan_.items[static_cast<size_t>(w / plan_.shape.kv_heads)];
    const int64_t head = w % plan_.shape.kv_heads;
    const size_t b = static_cast<size_t>(item.sequence);
    const int64_t token = plan_.q_start[b] + item.q_begin;
    const int32_t queries = plan_.q_start[b + 1] - plan_.q_start[b];
    return {
        .q = {Element(args_.q, token, head * group_), args_.q.stride(0), args_.q.stride(1)},
        .out = {Element(args_.out, token, head * group_), args_.out.stride(0), args_.out.stride(1)},
        .k = {Element(args_.k_cache, 0, head), args_.k_cache.stride(0), args_.k_cache.stride(2)},
        .v = {Element(args_.v_cache, 0, head), args_.v_cache.stride(0), args_.v_cache.stride(2)},
        .pages = args_.page_table.as<int32_t>() + item.sequence * args_.page_table.stride(0),
        .page_tokens = static_cast<int32_t>(args_.k_cache.dim(2)),
        .head_dim = plan_.shape.head_dim,
        .queries = item.q_end - item.q_begin,
        .group = group_,
        .visible = plan_.kv_len[b] - queries + item.q_begin + 1,
        .kv_begin = item.kv_begin,
        .kv_end = item.kv_end,
        .scale = args_.scale * ScaleOf(args_.k_scale, head),
        .v_scale = ScaleOf(args_.v_scale, head),
        .partial = item.partial_row < 0 ? nullptr : Partial(item.partial_row, head),
        .scratch = scratch_ + thread * AttentionScratchFloats(plan_.shape.head_dim),
    };
  }

  // Join j for query head `head`.
  void Join(const PagedAttentionJoin& join, int64_t head) const {
    const float v_scale = ScaleOf(args_.v_scale, head / group_);
    for (int32_t t = 0; t < join.queries; ++t) {
      const int64_t token = plan_.q_start[static_cast<size_t>(join.sequence)] + t;
      const int64_t row = join.partial_row + int64_t{t} * group_ + head % group_;
      char* out = Element(args_.out, token, head);
      const float* first = Partial(row, head / group_);
      const int64_t step = int64_t{join.queries} * group_ * RowFloats();
      if (args_.out.dtype == DType::kF32) {
        JoinRow({first, step, join.splits, v_scale}, reinterpret_cast<float*>(out));
      } else {
        JoinRow({first, step, join.splits, v_scale}, reinterpret_cast<BFloat16*>(out));
      }
    }
  }

 private:
  // The parts of a row, `step` floats from one to the next.
  struct Parts {
    const float* first;
    int64_t step;
    int32_t splits;
    float v_scale;
  };

  // 1 where the cache holds no codes.
  static float ScaleOf(const TensorView& scale, int64_t kv_head) {
    return scale.data == nullptr ? 1 : scale.as<float>()[kv_head];
  }

  static void Put(float x, float* to) { *to = x; }
  static void Put(float x, BFloat16* to) { *to = ToBFloat16(x); }

  int64_t RowFloats() const { return plan_.shape.head_dim + 2; }
  float* Partial(int64_t row, int64_t kv_head) const {
    return partials_ + (kv_head * plan_.partial_rows + row) * RowFloats();
  }

  template <typename T>
  void JoinRow(const Parts& parts, T* out) const {
    const auto& [first, step, splits, v_scale] = parts;
    const int32_t dim = plan_.shape.head_dim;
    float maximum = -std::numeric_limits<float>::infinity();
    for (int32_t s = 0; s < splits; ++s) maximum = std::fmax(maximum, first[s * step + dim]);
    float weights[kAttentionMaxSplits];
    float sum = 0;
    for (int32_t s = 0; s < splits; ++s) {
      // A part none of whose keys the row sees has maximum -inf and weighs nothing.
      weights[s] = std::exp(first[s * step + dim] - maximum);
      sum += weights[s] * first[s * step + dim + 1];
    }
    float acc[kAttentionMaxHeadDim] = {};
    for (int32_t s = 0; s < splits; ++s) {
      const float* part = first + s * step;
      for (int32_t d = 0; d < dim; ++d) acc[d] += weights[s] * part[d];
    }
    for (int32_t d = 0; d < dim; ++d) Put(acc[d] * (v_scale / sum), out + d);
  }

  const PagedAttentionPlan& plan_;
  const PagedAttentionArgs& args_;
  float* const partials_;
  float* const scratch_;
  const int32_t group_;
};

}  // namespace

int64_t PagedAttentionCpuScratchBytes(const PagedAttentionShape& shape, int threads) {
  return threads * AttentionScratchFloats(shape.head_dim) * static_cast<int64_t>(sizeof(float)) +
         2 * 256;  // the workspace rounds each of the two pieces up
}

absl::Status PagedAttentionCpu(const OpContext& ctx, const PagedAttentionCall& call) {
  RETURN_IF_ERROR(CheckLengths(call));
  RETURN_IF_ERROR(CheckPages(call));
  ThreadPool& pool = *ctx.device.thread_pool();
  const PagedAttentionPlan& plan = call.plan;
  WorkspaceScope workspace(ctx.workspace);
  ASSIGN_OR_RETURN(void* partials, workspace.Take(plan.partial_rows * plan.shape.kv_heads *
                                                  PagedAttentionPartialRowBytes(plan.shape)));
  ASSIGN_OR_RETURN(void* scratch,
                   workspace.Take(pool.threads() * AttentionScratchFloats(plan.shape.head_dim) *
                                  static_cast<int64_t>(sizeof(float))));
  const AttentionRun run(call, static_cast<float*>(partials), static_cast<float*>(scratch));
  const AttentionKernels& kernels = KernelsFor(pool.isa(), plan.shape.head_dim);
  const DType cache = call.args.k_cache.dtype;
  const int from = cache == DType::kF32 ? 0 : cache == DType::kBF16 ? 1 : 2;
  const AttendFn attend = kernels.attend[call.args.q.dtype == DType::kBF16][from];

  // Items differ in cost, so threads take them one by one. Which thread does which changes nothing.
  const int64_t units = static_cast<int64_t>(plan.items.size()) * plan.shape.kv_heads;
  std::atomic<int64_t> next{0};
  pool.ParallelFor(std::min<int64_t>(pool.threads(), units), 1, [&](int64_t, int64_t, int thread) {
    for (int64_t w = next.fetch_add(1); w < units; w = next.fetch_add(1)) {
      attend(run.Tile(w, thread));
    }
  });
  const int64_t heads = plan.shape.q_heads;
  pool.ParallelFor(static_cast<int64_t>(plan.joins.size()) * heads, 8,
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t i = begin; i < end; ++i) {
                       run.Join(plan.joins[static_cast<size_t>(i / heads)], i % heads);
                     }
                   });
  return absl::OkStatus();
}

}  // namespace millrace
