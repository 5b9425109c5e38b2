// One-shot all-reduce. Grid: one block a token, at most one a multiprocessor (a block that waits
// for a packet must not keep the block that sends one from starting), each then goes on to its next
// token; a thread has kWords packets of four elements of the row. A block writes its row into every
// peer's inbox, waits for theirs in its own, sums in rank order and normalises. Two latencies of
// NVLink at least: none for a barrier, because packets carry their flag (packet.h). Small messages
// are bound by that latency, large ones by the link, which carries each byte twice.
#include <cuda_bf16.h>

#include "kernels/all_reduce/all_reduce_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;
constexpr int kWidth = 4;            // elements of a packet
constexpr int kSpinsPerLook = 1024;  // how often a thread that waits asks whether to stop

// To memory of this or another GPU. Each half is one access of its own.
__device__ __forceinline__ void StorePacket(AllReducePacket* to, const AllReducePacket& packet) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(packet.halves[0]),
               "l"(packet.halves[1])
               : "memory");
}

__device__ __forceinline__ AllReducePacket LoadPacket(const AllReducePacket* from) {
  AllReducePacket packet;
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(packet.halves[0]), "=l"(packet.halves[1])
               : "l"(from)
               : "memory");
  return packet;
}

// A word of the state as it is now, whatever lies in L1.
__device__ __forceinline__ uint32_t LoadWord(const uint32_t* from) {
  uint32_t word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

struct Four {
  float v[kWidth];
};

__device__ __forceinline__ Four Widened(uint2 raw) {
  return {{__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xffff0000u),
           __uint_as_float(raw.y << 16), __uint_as_float(raw.y & 0xffff0000u)}};
}

__device__ __forceinline__ uint32_t Packed(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

__device__ __forceinline__ uint2 Narrowed(const Four& x) {
  return make_uint2(Packed(x.v[0], x.v[1]), Packed(x.v[2], x.v[3]));
}

// Sum over the block, the same in every thread and on every rank. Every thread calls it.
__device__ float BlockSum(float x) {
  __shared__ float parts[kMaxThreads / kWarp];
  for (int d = kWarp / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  __syncthreads();  // the parts of the token before have been read
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < blockDim.x / kWarp; ++i) sum += parts[i];
  return sum;
}

// One call as one thread sees it.
struct Exchange {
  const AllReduceKernelArgs& args;
  uint32_t flag;

  // Puts four elements, packet i of this rank's message, into every other rank's inbox.
  __device__ __forceinline__ void Send(uint2 data, int64_t i) const {
    const AllReducePacket packet = {{PacketHalf(data.x, flag), PacketHalf(data.y, flag)}};
    const int64_t at = PacketIndex(flag, args.ranks, args.rank, args.max_packets) + i;
    for (int n = 1; n < args.ranks; ++n) {
      int to = args.rank + n;  // each rank begins with another
      if (to >= args.ranks) to -= args.ranks;
      StorePacket(args.inboxes[to] + at, packet);
    }
  }

  // The sum in rank order of everyone's packet i, of which this rank's is `own`.
  template <int kRanks>
  __device__ __forceinline__ Four SumOf(uint2 own, int64_t i) const {
    const AllReducePacket* inbox = args.inboxes[args.rank];
    uint2 parts[kRanks];
    bool missing = true;
    for (int spins = 1; missing; ++spins) {
      missing = false;
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r >= args.ranks || r == args.rank) continue;
        const AllReducePacket packet =
            LoadPacket(inbox + PacketIndex(flag, args.ranks, r, args.max_packets) + i);
        parts[r] = make_uint2(PacketData(packet.halves[0]), PacketData(packet.halves[1]));
        missing |= !HasFlag(packet, flag);
      }
      if (spins % kSpinsPerLook == 0 && LoadWord(&args.state->stopped) != 0) break;
    }
    Four sum = {};
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r >= args.ranks) break;
      const Four part = Widened(r == args.rank ? own : parts[r]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.v[j] = r == 0 ? part.v[j] : sum.v[j] + part.v[j];
    }
    return sum;
  }
};

// The last block to end makes the flag that of the last call.
__device__ __forceinline__ void EndCall(AllReduceState* state, uint32_t flag) {
  __syncthreads();  // every thread has read the flag
  if (threadIdx.x != 0) return;
  if (atomicAdd(&state->done, 1) != gridDim.x - 1) return;
  state->done = 0;
  state->flag = flag;
}

template <int kRanks, int kWords>
__global__ void __launch_bounds__(kMaxThreads, 1)
    SumAndNorm(const __grid_constant__ AllReduceKernelArgs args) {
  using Bf16 = __nv_bfloat16;
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  const int step = static_cast<int>(blockDim.x) * kWidth;
  const auto at = [](const void* row, int i) {
    return reinterpret_cast<const uint2*>(static_cast<const Bf16*>(row) + i);
  };
  uint2 weights[kWords] = {};  // they are there before the step
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    if (first + n * step < args.size) weights[n] = *at(args.weight, first + n * step);
  }
  WaitForPriorGrid();
  StartNextGrid();
  const Exchange exchange = {args, NextFlag(LoadWord(&args.state->flag))};
  for (int t = static_cast<int>(blockIdx.x); t < args.tokens; t += static_cast<int>(gridDim.x)) {
    const Bf16* x = static_cast<const Bf16*>(args.x) + t * args.x_stride;
    Bf16* residual = static_cast<Bf16*>(args.residual) + t * args.residual_stride;
    Bf16* y = static_cast<Bf16*>(args.y) + t * args.y_stride;
    const int64_t row = static_cast<int64_t>(t) * (args.size / kWidth);  // its first packet
    uint2 own[kWords], h[kWords];
#pragma unroll
    for (int n = 0; n < kWords; ++n) {
      const int i = first + n * step;
      if (i >= args.size) continue;
      own[n] = *at(x, i);
      h[n] = *at(residual, i);
    }
#pragma unroll
    for (int n = 0; n < kWords; ++n) {
      const int i = first + n * step;
      if (i < args.size) exchange.Send(own[n], row + i / kWidth);
    }
    float squares = 0;
#pragma unroll
    for (int n = 0; n < kWords; ++n) {
      const int i = first + n * step;
      if (i >= args.size) continue;
      Four sum = exchange.SumOf<kRanks>(own[n], row + i / kWidth);
      const Four before = Widened(h[n]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.v[j] += before.v[j];
      h[n] = Narrowed(sum);
      *reinterpret_cast<uint2*>(residual + i) = h[n];
      const Four rounded = Widened(h[n]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) squares += rounded.v[j] * rounded.v[j];
    }
    const float scale = rsqrtf(BlockSum(squares) / static_cast<float>(args.size) + args.eps);
#pragma unroll
    for (int n = 0; n < kWords; ++n) {
      const int i = first + n * step;
      if (i >= args.size) continue;
      Four out = Widened(h[n]);
      const Four w = Widened(weights[n]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out.v[j] *= scale * w.v[j];
      *reinterpret_cast<uint2*>(y + i) = Narrowed(out);
    }
  }
  EndCall(args.state, exchange.flag);
}

using Kernel = void (*)(AllReduceKernelArgs);
// [up to 2, 4, 8 ranks][1, 2, 4 packets a thread]
constexpr Kernel kKernels[3][3] = {
    {SumAndNorm<2, 1>, SumAndNorm<2, 2>, SumAndNorm<2, 4>},
    {SumAndNorm<4, 1>, SumAndNorm<4, 2>, SumAndNorm<4, 4>},
    {SumAndNorm<8, 1>, SumAndNorm<8, 2>, SumAndNorm<8, 4>},
};

}  // namespace

cudaError_t LaunchAllReduceRmsNorm(const AllReduceKernelArgs& args, int max_blocks,
                                   cudaStream_t stream) {
  const int packets = args.size / kWidth;
  const int words = (packets + kMaxThreads - 1) / kMaxThreads;
  const int threads = packets >= kMaxThreads ? kMaxThreads : (packets + kWarp - 1) / kWarp * kWarp;
  const int ranks = args.ranks <= 2 ? 0 : args.ranks <= 4 ? 1 : 2;
  const Kernel kernel = kKernels[ranks][words <= 1 ? 0 : words <= 2 ? 1 : 2];
  const int blocks = args.tokens < max_blocks ? args.tokens : max_blocks;
  return Launch(
      kernel,
      {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(static_cast<unsigned>(threads))},
      stream, args);
}

}  // namespace millrace
