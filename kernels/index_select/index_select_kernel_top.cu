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

// A token's scores.
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
  for (int i = thread; i < orders.count; i += kThreads) {
    const uint32_t order = orders.of[i];
    if ((order & cut->known) == cut->bits) atomicAdd(&shared.bins[order >> shift & mask], 1u);
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

// In rising order of the entries; each warp has a stretch of whole groups of 32.
__device__ __forceinline__ void CopyChosen(const Orders& orders, const Cut& cut, TopShared& shared,
                                           int32_t* selected) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int stretch = (orders.count + kThreads - 1) / kThreads * 32;
  const int begin = min(warp * stretch, orders.count), end = min(begin + stretch, orders.count);
  const auto compare = [&](int i, uint32_t* higher, uint32_t* equal) {
    const uint32_t order = i < end ? orders.of[i] : 0;
    *higher = __ballot_sync(0xffffffffu, i < end && order > cut.bits);
    *equal = __ballot_sync(0xffffffffu, i < end && order == cut.bits);
  };
  uint32_t higher = 0, equal = 0, count_higher = 0, count_equal = 0;
  for (int i = begin; i < end; i += 32) {
    compare(i + lane, &higher, &equal);
    count_higher += __popc(higher);
    count_equal += __popc(equal);
  }
  if (lane == 0) {
    shared.higher[warp] = count_higher;
    shared.equal[warp] = count_equal;
  }
  __syncthreads();
  uint32_t higher_before = SumOfWarpsBefore(shared.higher);
  uint32_t equal_before = SumOfWarpsBefore(shared.equal);
  const uint32_t lower_lanes = (1u << lane) - 1;
  for (int i = begin; i < end; i += 32) {
    compare(i + lane, &higher, &equal);
    const uint32_t my_equal = equal_before + __popc(equal & lower_lanes);
    const bool is_equal = equal >> lane & 1, is_higher = higher >> lane & 1;
    if (is_higher || (is_equal && my_equal < cut.wanted)) {
      const uint32_t ahead = higher_before + __popc(higher & lower_lanes);
      selected[ahead + min(my_equal, cut.wanted)] = i + lane;
    }
    higher_before += __popc(higher);
    equal_before += __popc(equal);
  }
}

__global__ void __launch_bounds__(kThreads)
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
  const Orders orders = {args.orders + int64_t{place} * args.entry_room, token.visible};
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
