#include <algorithm>
#include <cstring>

#include "kernels/cpu/thread_pool.h"
#include "kernels/moe_exchange/moe_exchange_impl.h"

namespace millrace {
namespace {

// Channels that are worth another thread: a few microseconds of work.
constexpr int64_t kChannelsPerTask = 16384;

// The first expert of a rank; of W the number of all.
int64_t FirstExpert(const MoeDispatchArgs& args, int64_t rank) {
  const int64_t ranks = args.counts.dim(0);
  return rank * (args.num_experts / ranks) + std::min(rank, args.num_experts % ranks);
}

// Whether one of the token's experts is in [first, end).
bool Holds(const MoeDispatchArgs& args, int64_t token, int64_t first, int64_t end) {
  const int32_t* experts = args.experts.as<int32_t>() + token * args.experts.stride(0);
  return std::any_of(experts, experts + args.experts.dim(1),
                     [&](int32_t e) { return e >= first && e < end; });
}

void WriteMessage(const MoeDispatchArgs& args, int64_t token, int64_t row) {
  const int64_t hidden = args.x.dim(1);
  const int64_t chosen = args.experts.dim(1);
  float* to = args.rows.as<float>() + row * args.rows.stride(0);
  if (args.x.dtype == DType::kF32) {
    std::copy_n(args.x.as<float>() + token * args.x.stride(0), hidden, to);
  } else {
    const BFloat16* x = args.x.as<BFloat16>() + token * args.x.stride(0);
    std::transform(x, x + hidden, to, [](BFloat16 value) { return ToFloat(value); });
  }
  std::copy_n(args.weights.as<float>() + token * args.weights.stride(0), chosen, to + hidden);
  std::memcpy(to + hidden + chosen, args.experts.as<int32_t>() + token * args.experts.stride(0),
              static_cast<size_t>(chosen) * sizeof(int32_t));
}

}  // namespace

absl::Status MoeDispatchCpu(const OpContext& ctx, const MoeDispatchArgs& args) {
  int32_t* source = args.source.as<int32_t>();
  int64_t rows = 0;
  for (int64_t rank = 0; rank < args.counts.dim(0); ++rank) {
    const int64_t before = rows;
    const int64_t first = FirstExpert(args, rank);
    const int64_t end = FirstExpert(args, rank + 1);
    for (int64_t t = 0; t < args.x.dim(0); ++t) {
      if (Holds(args, t, first, end)) source[rows++] = static_cast<int32_t>(t);
    }
    args.counts.as<int32_t>()[rank] = static_cast<int32_t>(rows - before);
  }
  ctx.device.thread_pool()->ParallelFor(rows,
                                        std::max<int64_t>(1, kChannelsPerTask / args.rows.dim(1)),
                                        [&](int64_t begin, int64_t end, int) {
                                          for (int64_t row = begin; row < end; ++row)
                                            WriteMessage(args, source[row], row);
                                        });
  return absl::OkStatus();
}

absl::Status MoeCombineCpu(const OpContext&, const MoeCombineArgs& args) {
  const int64_t tokens = args.y.dim(0);
  const int64_t hidden = args.y.dim(1);
  for (int64_t t = 0; t < tokens; ++t) {
    std::fill_n(args.y.as<float>() + t * args.y.stride(0), hidden, 0.0f);
  }
  for (int64_t row = 0; row < args.rows.dim(0); ++row) {
    const int64_t t = args.source.as<int32_t>()[row];
    if (t < 0 || t >= tokens) continue;
    const float* from = args.rows.as<float>() + row * args.rows.stride(0);
    float* y = args.y.as<float>() + t * args.y.stride(0);
    for (int64_t i = 0; i < hidden; ++i) y[i] += from[i];
  }
  return absl::OkStatus();
}

}  // namespace millrace
