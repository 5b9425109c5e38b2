// By score: a token a warp, its keys and scores in registers. Each of K rounds finds the largest
// key by one reduction over the warp and the lowest id that has it by another, and its lane strikes
// it out. By hash: a token a warp, a choice a lane. Both are short chains of instructions: for one
// token a launch's latency counts, for thousands the scores (some 60 instructions each).
#include <climits>
#include <cmath>

#include "kernels/moe_route/moe_route_kernel.h"
#include "kernels/moe_route/moe_route_score.h"
#include "kernels/ptx/early_start.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

constexpr int kWarps = 4;  // of a block: one for each of a multiprocessor's schedulers
constexpr unsigned kAll = 0xffffffffu;

// As __fsqrt_rn for x that is not negative, by the same operations, but without its branch: the
// scores of a lane would come one after the other.
__device__ __forceinline__ float RoundedRoot(float x) {
  const bool is_small = x < 0x1p-101f;
  const float scaled = is_small ? __fmul_rn(x, 0x1p64f) : x;
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(scaled));
  const float near = __fmul_rn(scaled, inverse);
  const float root = __fmaf_rn(__fmaf_rn(-near, near, scaled), __fmul_rn(inverse, 0.5f), near);
  if (x == 0 || x == INFINITY) return x;
  return is_small ? __fmul_rn(root, 0x1p-32f) : root;
}

__device__ __forceinline__ float Score(float logit) { return RoundedRoot(RouteSoftplus(logit)); }

// The token of this warp.
__device__ __forceinline__ int WarpToken() {
  return static_cast<int>(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
}

// Of one chosen expert's score and the sum of all.
__device__ __forceinline__ float WeightOf(float score, float sum, float scaling) {
  return sum == 0 ? score : __fmul_rn(__fdiv_rn(score, sum), scaling);
}

// Orders floats as unsigned integers; NaN is -inf, and everything is above 0, which stands for what
// is not there. Keys are never -0: a score that is not negative was added last.
__device__ __forceinline__ uint32_t OrderedKey(float key) {
  const uint32_t bits = __float_as_uint(key != key ? -INFINITY : key);
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

// kWidth floats of a row, aligned to their size.
template <int kWidth>
__device__ __forceinline__ void LoadFloats(const float* from, float* to) {
  if constexpr (kWidth == 4) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else {
    static_assert(kWidth == 1);
    to[0] = *from;
  }
}

// A lane's part of a token's experts: kWords words of kWidth, 32 lanes apart.
template <int kWidth, int kWords>
struct LaneExperts {
  static constexpr int kSize = kWidth * kWords;
  uint32_t keys[kSize];
  float scores[kSize];

  // Of the i-th expert; rises with i.
  __device__ __forceinline__ static int Id(int i) {
    return i / kWidth * 32 * kWidth + static_cast<int>(threadIdx.x % 32) * kWidth + i % kWidth;
  }
  // Whose lane's an expert is.
  __device__ __forceinline__ static int Owner(int id) { return id / kWidth % 32; }

  __device__ __forceinline__ static void Load(const float* from, int size, float (&to)[kSize]) {
#pragma unroll
    for (int i = 0; i < kSize; i += kWidth) {
      if (Id(i) < size) LoadFloats<kWidth>(from + Id(i), to + i);
    }
  }

  __device__ __forceinline__ LaneExperts(const float (&logits)[kSize], const float (&bias)[kSize],
                                         int size) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      scores[i] = Score(logits[i]);
      keys[i] = Id(i) < size ? OrderedKey(__fadd_rn(scores[i], bias[i])) : 0;
    }
  }

  // The expert of the largest key in the warp, of equal ones the lowest; its score too. Strikes it
  // out.
  __device__ __forceinline__ int TakeLargest(float* score) {
    // As a tree, for its depth is what the round waits for.
    uint32_t best[kSize];
    int ids[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) best[i] = keys[i], ids[i] = Id(i);
#pragma unroll
    for (int step = 1; step < kSize; step *= 2) {
#pragma unroll
      for (int i = 0; i + step < kSize; i += 2 * step) {
        if (best[i + step] > best[i]) best[i] = best[i + step], ids[i] = ids[i + step];
      }
    }
    const uint32_t largest = __reduce_max_sync(kAll, best[0]);
    const int winner = __reduce_min_sync(kAll, best[0] == largest ? ids[0] : INT_MAX);
    float taken = 0;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (Id(i) == winner) taken = scores[i], keys[i] = 0;
    }
    *score = __shfl_sync(kAll, taken, Owner(winner));
    return winner;
  }
};

template <int kWidth, int kWords>
__global__ void __launch_bounds__(kWarps * 32)
    RouteToLargest(const __grid_constant__ RouteByScoreKernelArgs args) {
  using Experts = LaneExperts<kWidth, kWords>;
  StartNextGridEarly();
  const RouteKernelTokens& tokens = args.tokens;
  float bias[Experts::kSize] = {}, logits[Experts::kSize] = {};
  Experts::Load(args.bias, tokens.num_experts, bias);
  WaitForPriorGrid();
  StartNextGrid();
  const int t = WarpToken();
  if (t >= tokens.tokens) return;
  Experts::Load(tokens.logits + t * tokens.logits_stride, tokens.num_experts, logits);
  Experts experts(logits, bias, tokens.num_experts);

  // Lane i % 32 keeps choice i; of more than 32, their scores wait in memory.
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool keep = tokens.chosen <= 32;
  int32_t* const ids = tokens.experts + t * tokens.experts_stride;
  float* const weights = tokens.weights + t * tokens.weights_stride;
  float sum = 0, mine = 0;
#pragma unroll 1
  for (int i = 0; i < tokens.chosen; ++i) {
    float score;
    const int id = experts.TakeLargest(&score);
    sum = __fadd_rn(sum, score);
    if (lane != i % 32) continue;
    mine = score;
    ids[i] = id;
    if (!keep) weights[i] = score;
  }
#pragma unroll 1
  for (int i = lane; i < tokens.chosen; i += 32) {
    weights[i] = WeightOf(keep ? mine : weights[i], sum, tokens.scaling);
  }
}

// The row of token t in the table, -1 for none.
__device__ __forceinline__ int TableRowOf(const RouteByHashKernelArgs& args, int t) {
  int id = args.ids[t];
  if (id < 0) {
    const int slot = -1 - id;
    id = slot < args.slots ? args.last_tokens[slot] : -1;
  }
  return id < args.table_rows ? id : -1;
}

__global__ void __launch_bounds__(kWarps * 32)
    RouteByTable(const __grid_constant__ RouteByHashKernelArgs args) {
  StartNextGridEarly();
  WaitForPriorGrid();
  StartNextGrid();
  const RouteKernelTokens& tokens = args.tokens;
  const int t = WarpToken();
  if (t >= tokens.tokens) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row = TableRowOf(args, t);
  const float* const logits = tokens.logits + t * tokens.logits_stride;
  int32_t* const ids = tokens.experts + t * tokens.experts_stride;
  float* const weights = tokens.weights + t * tokens.weights_stride;
  // Lane i % 32 keeps choice i; of more than 32, their scores wait in memory.
  const bool keep = tokens.chosen <= 32;
  float sum = 0, mine = 0;
  for (int begin = 0; begin < tokens.chosen; begin += 32) {
    const int i = begin + lane;
    mine = 0;
    if (i < tokens.chosen) {
      int id = row < 0 ? -1 : args.table[row * args.table_stride + i];
      if (id < 0 || id >= tokens.num_experts) id = -1;
      if (id >= 0) mine = Score(logits[id]);
      ids[i] = id;
      if (!keep) weights[i] = mine;
    }
    // In the order of the choices.
    const int count = min(32, tokens.chosen - begin);
    for (int j = 0; j < count; ++j) sum = __fadd_rn(sum, __shfl_sync(kAll, mine, j));
  }
#pragma unroll 1
  for (int i = lane; i < tokens.chosen; i += 32) {
    weights[i] = WeightOf(keep ? mine : weights[i], sum, tokens.scaling);
  }
}

LaunchShape ShapeOf(int tokens) {
  const int warps = tokens < kWarps ? tokens : kWarps;
  return {.grid = dim3(static_cast<unsigned>((tokens + warps - 1) / warps)),
          .block = dim3(static_cast<unsigned>(32 * warps))};
}

using Kernel = void (*)(RouteByScoreKernelArgs);

Kernel Choose(int experts, bool aligned) {
  if (!aligned) return experts <= 256 ? RouteToLargest<1, 8> : RouteToLargest<1, 32>;
  if (experts <= 256) return RouteToLargest<4, 2>;
  return experts <= 384 ? RouteToLargest<4, 3> : RouteToLargest<4, 8>;
}
static_assert(kMaxRoutedExperts == 32 * 32);

}  // namespace

cudaError_t LaunchRouteByScore(const RouteByScoreKernelArgs& args, cudaStream_t stream) {
  return Launch(Choose(args.tokens.num_experts, args.aligned), ShapeOf(args.tokens.tokens), stream,
                args);
}

cudaError_t LaunchRouteByHash(const RouteByHashKernelArgs& args, cudaStream_t stream) {
  return Launch(RouteByTable, ShapeOf(args.tokens.tokens), stream, args);
}

}  // namespace millrace
