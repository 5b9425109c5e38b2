// How sums with tokens on the 64-row side are stored. A thread has, of each 8 outputs, four sums:
// of outputs 2 (lane % 4) and the next, of tokens lane / 4 and 8 further.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_M64_STORE_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_M64_STORE_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_addends.cuh"
#include "kernels/ptx/mma.cuh"

namespace millrace::fp8_m64 {

// Any y, one output after the other. Not inlined: what nearly every call stores is to stay short.
inline __device__ __noinline__ void StoreSingly(const Fp8GemmKernelArgs& args, int output,
                                                int token, float4 sums) {
  const float s[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int t = token + i / 2 * 8, o = output + i % 2;
    if (t >= args.tokens || o >= args.outputs) continue;
    const float y = WithAddends(args, t, o, s[i]);
    if (args.y_bf16) {
      static_cast<__nv_bfloat16*>(args.y)[t * args.y_stride + o] = __float2bfloat16(y);
    } else {
      static_cast<float*>(args.y)[t * args.y_stride + o] = y;
    }
  }
}

// Of a lane and the one `distance` away, the lower one's b for the upper one's a.
__device__ __forceinline__ void Swap(uint32_t& a, uint32_t& b, int distance) {
  const bool upper = (threadIdx.x & distance) != 0;
  const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? a : b, distance);
  if (upper) {
    a = got;
  } else {
    b = got;
  }
}

// A token's bf16 of a thread, kPairs of them from one 8 outputs to the next: four neighbouring
// lanes turn them over, so that each stores 16 bytes where there are four pairs.
template <int kPairs>
__device__ __forceinline__ void StorePairs(__nv_bfloat16* y, uint32_t (&pairs)[kPairs],
                                           bool there) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
  if constexpr (kPairs < 4) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (there) *reinterpret_cast<uint32_t*>(y + 8 * i + 2 * lane) = pairs[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPairs; i += 4) {
      Swap(pairs[i], pairs[i + 1], 1);
      Swap(pairs[i + 2], pairs[i + 3], 1);
      Swap(pairs[i], pairs[i + 2], 2);
      Swap(pairs[i + 1], pairs[i + 3], 2);
      if (there) {
        *reinterpret_cast<uint4*>(y + 8 * i + 8 * lane) =
            make_uint4(pairs[i], pairs[i + 1], pairs[i + 2], pairs[i + 3]);
      }
    }
  }
}

// A warp's sums of 16 tokens and 2 kSums outputs from these on. All lanes of it.
template <int kSums>
__device__ __forceinline__ void StoreSums(const Fp8GemmKernelArgs& args, int output, int token,
                                          float (&sums)[kSums]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  token += lane / 4;
  if (args.y_bf16 && args.y_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args.y) % 16 == 0 &&
      !HasAddends(args) && output + 2 * kSums <= args.outputs) {
    auto* const y = static_cast<__nv_bfloat16*>(args.y) + token * args.y_stride + output;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t pairs[kSums / 4];
#pragma unroll
      for (int i = 0; i < kSums / 4; ++i) {
        pairs[i] = PackBf16(sums[4 * i + 2 * h], sums[4 * i + 2 * h + 1]);
      }
      StorePairs(y + 8 * h * args.y_stride, pairs, token + 8 * h < args.tokens);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    StoreSingly(args, output + 2 * i + lane % 4 * 2, token,
                {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]});
  }
}

}  // namespace millrace::fp8_m64

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_M64_STORE_CUH_
