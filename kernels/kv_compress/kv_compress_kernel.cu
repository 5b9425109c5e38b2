// Grid: units (kv_compress_kernel_unit.cuh) x slices of their rows, the slices of a unit a cluster.
// A thread has four channels and eight tokens at a time in registers, and its four of the row to
// the end; groups of threads share the tokens of a long window and meet in shared memory. What the
// step must remember is written by a sequence's first unit after the entries that read what it
// overwrites, and by the unit of a block's last window. Bound by memory: each projection is read
// once.
#include "kernels/kv_compress/kv_compress_kernel.h"
#include "kernels/kv_compress/kv_compress_kernel_entry.cuh"
#include "kernels/ptx/early_start.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

// A token of the step, and where it is kept, from one channel on.
struct KeptToken {
  const float* kv;
  const float* score;
  const float* ape;
  KeptRow to;

  // Token i of its window. `row`: from channel 0 on.
  __device__ __forceinline__ KeptToken(const KvCompressKernelArgs& args, int t, int i, int channel,
                                       const KeptRow& row)
      : kv(args.kv + int64_t{t} * args.kv_stride + channel),
        score(args.score + int64_t{t} * args.score_stride + channel),
        ape(args.ape + int64_t{i} * args.ape_stride + channel),
        to{row.kv + channel, row.score + channel} {}
};

template <bool kAligned>
__device__ __forceinline__ void StoreFour(float* to, const Floats<4>& x) {
  if constexpr (kAligned) {
    *reinterpret_cast<float4*>(to) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = x.v[i];
  }
}

// Copies tokens [0, count) of at(k), whose channels this thread has, several in flight.
template <bool kAligned, typename At>
__device__ __forceinline__ void CopyTokens(const KvCompressPlan& plan, const CompressThread& thread,
                                           int count, At at) {
  constexpr int kInFlight = 4;
  if (thread.group >= plan.groups) return;
#pragma unroll 1
  for (int begin = thread.group; begin < count; begin += kInFlight * plan.groups) {
    Floats<4> kv[kInFlight], score[kInFlight], ape[kInFlight];
#pragma unroll
    for (int n = 0; n < kInFlight; ++n) {
      // Past the end once more the last: a load on a condition would hold registers all along.
      const KeptToken token = at(min(begin + n * plan.groups, count - 1));
      kv[n] = LoadFour<kAligned>(token.kv);
      score[n] = LoadFour<kAligned>(token.score);
      ape[n] = LoadFour<kAligned>(token.ape);
    }
#pragma unroll
    for (int n = 0; n < kInFlight; ++n) {
      const int k = begin + n * plan.groups;
      if (k >= count) continue;
      const KeptRow to = at(k).to;
#pragma unroll
      for (int i = 0; i < 4; ++i) score[n].v[i] = __fadd_rn(score[n].v[i], ape[n].v[i]);
      StoreFour<kAligned>(to.kv, kv[n]);
      StoreFour<kAligned>(to.score, score[n]);
    }
  }
}

// Where `window` is the last of its block, what its tokens of this step leave to the next block.
template <bool kAligned>
__device__ __forceinline__ void KeepCarry(const KvCompressKernelArgs& args,
                                          const CompressSequence& sequence, int window,
                                          const CompressThread& thread) {
  if (!Overlaps(args) || args.block_windows.Remainder(window + 1) != 0) return;
  const int begin = max(sequence.first, window * Ratio(args));
  const int end = min(sequence.end, (window + 1) * Ratio(args));
  const LatentPlace place = PlaceOf(args, sequence, window);
  if (!place.IsIn(args.store)) return;
  CopyTokens<kAligned>(args.plan, thread, end - begin, [&](int k) {
    const int position = begin + k, i = position - window * Ratio(args);
    return KeptToken(args, sequence.token_of_zero + position, i, thread.channel(),
                     CarryRow(args, place, i));
  });
}

// What the unfinished windows, and with overlap the window before, need.
template <bool kAligned>
__device__ __forceinline__ void KeepState(const KvCompressKernelArgs& args,
                                          const CompressSequence& sequence,
                                          const CompressThread& thread) {
  const int halves = Overlaps(args) ? 2 : 1;
  const int unfinished = args.ratio.Quotient(sequence.end);
  const int begin = max(sequence.first, (unfinished - (halves - 1)) * Ratio(args));
  CopyTokens<kAligned>(args.plan, thread, (sequence.end - begin) * halves, [&](int k) {
    const int position = begin + (halves == 2 ? k / 2 : k);
    const int channel = thread.channel() + (halves == 2 ? k % 2 * args.dim : 0);
    const int window = args.ratio.Quotient(position), i = position - window * Ratio(args);
    return KeptToken(args, sequence.token_of_zero + position, i, channel,
                     StateRow(args, sequence, window, i));
  });
}

// Barriers for what the slices of a unit send each other, known to all of them.
__device__ __forceinline__ void MeetSlices(const KvCompressPlan& plan, CompressSums& sums) {
#if __CUDA_ARCH__ >= 900
  if (plan.slices == 1) return;
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : sums.slices_here) {
      InitBarrier(&barrier, 1);
      ArriveExpect(&barrier, static_cast<uint32_t>(plan.slices * sizeof(float4)));
    }
    FenceBarrierInit();
  }
  ClusterMeet();
#endif
}

template <bool kAligned>
__global__ void __launch_bounds__(kCompressThreads, 2)
    CompressWindows(const __grid_constant__ KvCompressKernelArgs args) {
  extern __shared__ float4 memory[];
  __shared__ CompressSums sums;
  const CompressShared shared(args.plan, sums, reinterpret_cast<float*>(memory));
  StartNextGridEarly();
  const CompressThread thread(args.plan);
  const CompressUnit unit = FindUnit(args);
  CompressEntry entry(args, unit.sequence, unit.begin);
  if (Keeps(args) && unit.begin < unit.end) PrefetchEntry(args, entry, thread);
  MeetSlices(args.plan, sums);
  WaitForPriorGrid();
  StartNextGrid();
#pragma unroll 1
  for (int turn = 0; turn < unit.end - unit.begin; ++turn) {
    if (turn > 0) entry = CompressEntry(args, unit.sequence, unit.begin + turn);
    MakeEntry<kAligned>(args, entry, thread, shared, turn % 2);
    KeepCarry<kAligned>(args, unit.sequence, entry.index, thread);
  }
  if (!Keeps(args)) return;
  KeepCarry<kAligned>(args, unit.sequence, args.ratio.Quotient(unit.sequence.end), thread);
  __syncthreads();  // the state has been read
  KeepState<kAligned>(args, unit.sequence, thread);
}

}  // namespace

cudaError_t LaunchKvCompress(const KvCompressKernelArgs& args, cudaStream_t stream) {
  const KvCompressPlan& plan = args.plan;
  return Launch(args.aligned ? CompressWindows<true> : CompressWindows<false>,
                {.grid = dim3(static_cast<unsigned>(args.units * plan.slices)),
                 .block = dim3(static_cast<unsigned>(plan.threads)),
                 .shared_bytes = CompressShared::Bytes(args),
                 .cluster = plan.slices},
                stream, args);
}

}  // namespace millrace
