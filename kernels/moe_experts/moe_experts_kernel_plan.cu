// Who goes where (MoePlan), by one block that counts and places in the order of the choices. And y,
// the sums of each token's choices in their order.
#include <cstdint>

#include "kernels/moe_experts/moe_experts_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr int kPlanThreads = 1024, kPlanWarps = kPlanThreads / 32;
constexpr int kNobody = -1;

// Exclusive sums over the block of two numbers a thread; the totals in every thread.
struct Sums {
  int choices, items;
};
__device__ Sums BlockScan(Sums mine, Sums& total) {
  __shared__ Sums warps[32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  Sums sum = mine;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int choices = __shfl_up_sync(0xffffffffu, sum.choices, d);
    const int items = __shfl_up_sync(0xffffffffu, sum.items, d);
    if (lane >= d) sum.choices += choices, sum.items += items;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  Sums before = {0, 0};
  total = {0, 0};
  for (int w = 0; w < kPlanThreads / 32; ++w) {
    if (w < warp) before.choices += warps[w].choices, before.items += warps[w].items;
    total.choices += warps[w].choices, total.items += warps[w].items;
  }
  return {before.choices + sum.choices - mine.choices, before.items + sum.items - mine.items};
}

struct Choices {
  const MoeKernelArgs& args;
  // This rank's expert of choice i, kNobody.
  __device__ __forceinline__ int ExpertOf(int i) const {
    if (i >= args.tokens * args.chosen) return kNobody;
    const int64_t at = i / args.chosen * args.experts_stride + i % args.chosen;
    const int64_t expert = int64_t{args.experts[at]} - args.first_expert;
    return expert >= 0 && expert < args.gate.count ? static_cast<int>(expert) : kNobody;
  }
};

// A warp's choices are `part` ones in a row. Warp w's number of an expert's choices, then where in
// the expert's its own begin, is counts[w * experts + expert].
__global__ void __launch_bounds__(kPlanThreads)
    MoePlanKernel(const __grid_constant__ MoeKernelArgs args) {
  extern __shared__ int counts[];
  __shared__ int firsts[kMoeMostExperts];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int experts = args.gate.count, choices = args.tokens * args.chosen;
  const int part = (choices + kPlanThreads - 1) / kPlanThreads * 32;
  int* const mine = counts + warp * experts;
  const Choices all = {args};
  for (int i = thread; i < kPlanWarps * experts; i += kPlanThreads) counts[i] = 0;
  WaitForPriorGrid();
  StartNextGrid();
  __syncthreads();
  // Lanes of one expert: their number is added by the first.
  const auto for_each = [&](auto body) {
    for (int i = warp * part + lane; i - lane < min((warp + 1) * part, choices); i += 32) {
      const int expert = all.ExpertOf(i);
      const unsigned same = __match_any_sync(0xffffffffu, expert);
      const int before = __popc(same & ((1u << lane) - 1));
      const int at = expert == kNobody ? kNobody : mine[expert] + before;
      __syncwarp();
      if (expert != kNobody && before == 0) mine[expert] += __popc(same);
      __syncwarp();
      body(i, expert, at);
    }
  };
  for_each([](int, int, int) {});
  __syncthreads();
  int count = 0;
  if (thread < experts) {
    for (int w = 0; w < kPlanWarps; ++w) {
      const int of_warp = counts[w * experts + thread];
      counts[w * experts + thread] = count;
      count += of_warp;
    }
  }
  Sums total;
  const Sums before = BlockScan({count, (count + kMoeItemChoices - 1) / kMoeItemChoices}, total);
  firsts[thread] = before.choices;
  for (int i = 0; i * kMoeItemChoices < count; ++i) {
    const int from = i * kMoeItemChoices;
    args.plan.items[before.items + i] = {thread, before.choices + from,
                                         min(count - from, kMoeItemChoices), 0};
  }
  if (thread == 0) {
    args.plan.sizes[kMoeItems] = total.items;
    args.plan.sizes[kMoeChoices] = total.choices;
  }
  __syncthreads();
  for_each([&](int i, int expert, int at) {
    if (i >= choices) return;
    const int place = expert == kNobody ? kNobody : firsts[expert] + at;
    args.plan.place[i] = place;
    if (place != kNobody) args.plan.order[place] = i;
  });
}

constexpr int kCombineThreads = 256;

// Grid: tokens by channels. D is a multiple of kWide.
template <int kWide>
__global__ void __launch_bounds__(kCombineThreads)
    MoeCombineKernel(const __grid_constant__ MoeKernelArgs args) {
  const int channels = args.down.rows, token = static_cast<int>(blockIdx.y);
  const int channel = static_cast<int>(blockIdx.x * kCombineThreads + threadIdx.x) * kWide;
  WaitForPriorGrid();
  StartNextGrid();
  if (channel >= channels) return;
  Floats<kWide> sum = {};
#pragma unroll 4
  for (int k = 0; k < args.chosen; ++k) {
    const int place = args.plan.place[token * args.chosen + k];
    if (place < 0) continue;
    const float* const from = args.sums + int64_t{place} * channels + channel;
    const Floats<kWide> one = Widened(LoadVec<kWide>(from));
#pragma unroll
    for (int i = 0; i < kWide; ++i) sum.v[i] += one.v[i];
  }
  StoreVec(args.y + token * args.y_stride + channel, Narrowed<float>(sum));
}

}  // namespace

cudaError_t LaunchMoePlan(const MoeKernelArgs& args, cudaStream_t stream) {
  const size_t shared = static_cast<size_t>(kPlanWarps * args.gate.count) * sizeof(int);
  return Launch(MoePlanKernel,
                {.grid = dim3(1), .block = dim3(kPlanThreads), .shared_bytes = shared}, stream,
                args);
}

cudaError_t LaunchMoeCombine(const MoeKernelArgs& args, cudaStream_t stream) {
  const unsigned blocks =
      static_cast<unsigned>((args.down.rows + kCombineThreads - 1) / kCombineThreads);
  return Launch(
      MoeCombineKernel<1>,
      {.grid = dim3(blocks, static_cast<unsigned>(args.tokens)), .block = dim3(kCombineThreads)},
      stream, args);
}

}  // namespace millrace
