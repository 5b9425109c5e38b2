// One block per token. A token that sees no more than it may choose takes all. For others: the
// K-th highest score by radix select, 11, 11 and 10 bits of its integer from the highest on, each
// a histogram in shared memory of the scores that agree so far; then every warp copies the indices
// of what is higher, and of the first that are equal, from a stretch of the entries of its own.
// Bound by reading the scores, which the L2 has, five times.
#include "kernels/index_select/index_select_kernel.cuh"
#include "kernels/index_select/index_select_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kDigitBits = 11;
constexpr int kBins = 1 << kDigitBits;
static_assert(kBins == 2 * kThreads, "a thread looks at two bins");
static_assert(kWarps == 32, "the lanes of a warp look at what the warps counted");

struct TopShared {
  uint32_t bins[kBins];
  uint32_t higher[kWarps];
  uint32_t equal[kWarps];
  uint32_t digit;
  uint32_t wanted;
};

// A token's scores; room for whole groups of four.
struct Orders {
  const uint32_t* of;
  int count;
};

// The order of the last that is chosen, as far as its bits are known, and how many of that order.
struct Cut {
  uint32_t bits = 0;
  uint32_t known = 0;  // mask
  uint32_t wanted = 0;
};

// The sum over lower lanes and this one.
__device__ __forceinline__ uint32_t ScanLanes(uint32_t x) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (unsigned d = 1; d < 32; d *= 2) {
    const uint32_t below = __shfl_up_sync(0xffffffffu, x, d);
    if (lane >= d) x += below;
  }
  return x;
}

// The sum of counts[0] to counts[warp - 1].
__device__ __forceinline__ uint32_t SumOfWarpsBefore(const uint32_t (&counts)[kWarps]) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t own = counts[lane];
  return __shfl_sync(0xffffffffu, ScanLanes(own) - own, static_cast<int>(warp));
}

// The next `bits` bits of the cut, above `shift`.
__device__ __forceinline__ void ExtendCut(const Orders& orders, int shift, int bits,
                                          TopShared& shared, Cut* cut) {
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t mask = (1u << bits) - 1;
  shared.bins[thread] = 0;
  shared.bins[thread + kThreads] = 0;
  __syncthreads();
  constexpr int kFours = 2;  // in flight
  for (int begin = 4 * thread; begin < orders.count; begin += 4 * kThreads * kFours) {
    uint4 fours[kFours];
#pragma unroll
    for (int k = 0; k < kFours; ++k) {
      const int i = begin + 4 * kThreads * k;
      if (i < orders.count) fours[k] = *reinterpret_cast<const uint4*>(orders.of + i);
    }
#pragma unroll
    for (int k = 0; k < kFours; ++k) {
      const uint32_t order[4] = {fours[k].x, fours[k].y, fours[k].z, fours[k].w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (begin + 4 * kThreads * k + e >= orders.count) continue;
        if ((order[e] & cut->known) != cut->bits) continue;
        atomicAdd(&shared.bins[order[e] >> shift & mask], 1u);
      }
    }
  }
  __syncthreads();
  // From the highest bin down.
  const uint32_t bin = static_cast<uint32_t>(kBins - 1 - 2 * thread);
  const uint32_t first = shared.bins[bin], both = first + shared.bins[bin - 1];
  const uint32_t through_lanes = ScanLanes(both);
  if (thread % 32 == 31) shared.higher[thread / 32] = through_lanes;
  __syncthreads();
  const uint32_t before = SumOfWarpsBefore(shared.higher) + through_lanes - both;
  if (before < cut->wanted && cut->wanted <= before + both) {
    const bool is_first = cut->wanted <= before + first;
    shared.digit = is_first ? bin : bin - 1;
    shared.wanted = cut->wanted - before - (is_first ? 0 : first);
  }
  __syncthreads();
  cut->bits |= shared.digit << shift;
  cut->known |= mask << shift;
  cut->wanted = shared.wanted;
}

// Scores of a stretch of entries that a warp looks at, asked for together.
constexpr int kInFlight = 4;
struct StretchPart {
  uint32_t order[kInFlight];
  bool in[kInFlight];

  // Entries i, i + 32, ... before `end`.
  __device__ __forceinline__ StretchPart(const Orders& orders, int i, int end) {
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      in[k] = i + 32 * k < end;
      order[k] = in[k] ? orders.of[i + 32 * k] : 0;
    }
  }

  template <typename Predicate>
  __device__ __forceinline__ uint32_t Ballot(int k, Predicate predicate) const {
    return __ballot_sync(0xffffffffu, in[k] && predicate(order[k]));
  }
};

// In rising order of the entries; each warp has a stretch of whole groups of 32.
__device__ __forceinline__ void CopyChosen(const Orders& orders, const Cut& cut, TopShared& shared,
                                           int32_t* selected) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int stretch = (orders.count + kThreads - 1) / kThreads * 32;
  const int begin = min(warp * stretch, orders.count), end = min(begin + stretch, orders.count);
  uint32_t count_higher = 0, count_equal = 0;
  for (int i = begin; i < end; i += 32 * kInFlight) {
    const StretchPart part(orders, i + lane, end);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      count_higher += __popc(part.Ballot(k, [&](uint32_t order) { return order > cut.bits; }));
      count_equal += __popc(part.Ballot(k, [&](uint32_t order) { return order == cut.bits; }));
    }
  }
  if (lane == 0) {
    shared.higher[warp] = count_higher;
    shared.equal[warp] = count_equal;
  }
  __syncthreads();
  uint32_t higher_before = SumOfWarpsBefore(shared.higher);
  uint32_t equal_before = SumOfWarpsBefore(shared.equal);
  const uint32_t lower_lanes = (1u << lane) - 1;
  for (int i = begin; i < end; i += 32 * kInFlight) {
    const StretchPart part(orders, i + lane, end);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const uint32_t higher = part.Ballot(k, [&](uint32_t order) { return order > cut.bits; });
      const uint32_t equal = part.Ballot(k, [&](uint32_t order) { return order == cut.bits; });
      const uint32_t my_equal = equal_before + __popc(equal & lower_lanes);
      const bool is_equal = equal >> lane & 1, is_higher = higher >> lane & 1;
      if (is_higher || (is_equal && my_equal < cut.wanted)) {
        const uint32_t ahead = higher_before + __popc(higher & lower_lanes);
        selected[ahead + min(my_equal, cut.wanted)] = i + 32 * k + lane;
      }
      higher_before += __popc(higher);
      equal_before += __popc(equal);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    IndexTop(const __grid_constant__ IndexSelectKernelArgs args) {
  __shared__ TopShared shared;
  const int place = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const IndexToken token(args, args.first_token + place);
  WaitForPriorGrid();
  StartNextGrid();
  if (!token.IsIn(args)) return;
  int32_t* const selected =
      args.selected + (int64_t{args.first_token} + place) * args.selected_stride;
  if (!token.NeedsScores(args)) {
    for (int i = thread; i < args.chosen; i += kThreads) selected[i] = i < token.visible ? i : -1;
    return;
  }
  const Orders orders = {args.orders + int64_t{place} * args.order_stride, token.visible};
  Cut cut = {.wanted = static_cast<uint32_t>(args.chosen)};
  ExtendCut(orders, 21, 11, shared, &cut);
  ExtendCut(orders, 10, 11, shared, &cut);
  ExtendCut(orders, 0, 10, shared, &cut);
  CopyChosen(orders, cut, shared, selected);
}

}  // namespace

cudaError_t LaunchIndexTop(const IndexSelectKernelArgs& args, cudaStream_t stream) {
  return Launch(IndexTop,
                {.grid = dim3(static_cast<unsigned>(args.tokens)), .block = dim3(kThreads)}, stream,
                args);
}

}  // namespace millrace
