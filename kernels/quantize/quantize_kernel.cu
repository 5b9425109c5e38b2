// Sixteen lanes take eight elements each, a group of 128. Groups: a block has 16 tokens x four
// groups, so that the scales it writes, which lie tokens first, are neighbours; each thread has its
// four loads in flight at once. Tokens: a block a token, read twice, the second time from cache.
// Tensor: the maxima of all blocks first, then a second kernel. Bound by memory.
#include <cfloat>

#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"
#include "kernels/quantize/quantize_kernel.h"

namespace millrace {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;  // elements a thread takes at once
constexpr int kGroup = 128;
constexpr int kGroupLanes = kGroup / kWidth;
constexpr int kBlockTokens = kThreads / kGroupLanes;
constexpr int kBlockGroups = 4;

struct Eight {
  float v[kWidth];
};

template <typename T>
__device__ __forceinline__ float Widen(T x) {
  if constexpr (sizeof(T) == 2) {
    return __bfloat162float(x);
  } else {
    return x;
  }
}

// Elements i to i + 7 of a row; zeros past its end.
template <typename T>
__device__ __forceinline__ Eight Load(const QuantizeKernelArgs& args, int token, int i) {
  const T* const from = static_cast<const T*>(args.x) + token * args.x_stride + i;
  Eight x = {};
  if (!args.vectors) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (i + j < args.size) x.v[j] = Widen(from[j]);
    }
  } else if (i < args.size) {
    constexpr int kPiece = 16 / sizeof(T);
#pragma unroll
    for (int p = 0; p < kWidth / kPiece; ++p) {
      const auto piece = Widened(LoadVec<kPiece>(from + p * kPiece));
#pragma unroll
      for (int j = 0; j < kPiece; ++j) x.v[p * kPiece + j] = piece.v[j];
    }
  }
  return x;
}

// NaN counts as nothing, as fmaxf() has it.
__device__ __forceinline__ float Amax(const Eight& x) {
  float amax = 0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) amax = fmaxf(amax, fabsf(x.v[j]));
  return amax;
}

__device__ __forceinline__ float ScaleOf(float amax, bool power_of_two) {
  amax = fminf(amax, FLT_MAX);
  if (!power_of_two) return fmaxf(__fdiv_rn(amax, 448.0f), FLT_MIN);
  // 448 is 1.75 x 2^8: the power is the one of amax / 2^8, or the next above a mantissa of 1.75.
  const uint32_t bits = __float_as_uint(amax);
  const int exponent = static_cast<int>(bits >> 23) - 8 + ((bits & 0x7fffff) > 0x600000 ? 1 : 0);
  return __uint_as_float(static_cast<uint32_t>(max(exponent, 1)) << 23);
}

// Two codes, `low` in the low byte. NaN reaches this as the positive one that products give.
__device__ __forceinline__ uint32_t EncodePair(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

__device__ __forceinline__ void Store(const QuantizeKernelArgs& args, int token, int i,
                                      const Eight& x, float inverse) {
  uint8_t* const to = args.codes + token * args.codes_stride + i;
  uint32_t words[2];
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    const float* const v = x.v + 4 * w;
    words[w] = EncodePair(__fmul_rn(v[0], inverse), __fmul_rn(v[1], inverse)) |
               EncodePair(__fmul_rn(v[2], inverse), __fmul_rn(v[3], inverse)) << 16;
  }
  if (!args.vectors) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (i + j < args.size) to[j] = static_cast<uint8_t>(words[j / 4] >> (j % 4 * 8));
    }
  } else if (i < args.size) {
    *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  }
}

// Over the block, in every thread.
__device__ float BlockMax(float x) {
  __shared__ float parts[kThreads / 32];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  float most = parts[0];
#pragma unroll
  for (int i = 1; i < kThreads / 32; ++i) most = fmaxf(most, parts[i]);
  return most;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    QuantizeGroups(const __grid_constant__ QuantizeKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int token = static_cast<int>(blockIdx.y) * kBlockTokens + threadIdx.x / kGroupLanes;
  const int lane = threadIdx.x % kGroupLanes;
  const int first = static_cast<int>(blockIdx.x) * kBlockGroups * kGroup + lane * kWidth;
  const bool in = token < args.tokens;
  Eight x[kBlockGroups];
#pragma unroll
  for (int g = 0; g < kBlockGroups; ++g) {
    x[g] = in ? Load<T>(args, token, first + g * kGroup) : Eight{};
  }
#pragma unroll
  for (int g = 0; g < kBlockGroups; ++g) {
    float amax = Amax(x[g]);
#pragma unroll
    for (int d = kGroupLanes / 2; d > 0; d /= 2) {
      amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, d));
    }
    const float scale = ScaleOf(amax, args.power_of_two);
    const int group = static_cast<int>(blockIdx.x) * kBlockGroups + g;
    if (!in || group * kGroup >= args.size) continue;
    if (lane == 0) args.scale[group * args.scale_stride + token] = scale;
    Store(args, token, first + g * kGroup, x[g], __frcp_rn(scale));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    QuantizeTokens(const __grid_constant__ QuantizeKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int token = static_cast<int>(blockIdx.x);
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  float amax = 0;
  for (int i = first; i < args.size; i += kThreads * kWidth) {
    amax = fmaxf(amax, Amax(Load<T>(args, token, i)));
  }
  const float scale = ScaleOf(BlockMax(amax), args.power_of_two);
  if (threadIdx.x == 0) args.scale[token] = scale;
  const float inverse = __frcp_rn(scale);
  for (int i = first; i < args.size; i += kThreads * kWidth) {
    Store(args, token, i, Load<T>(args, token, i), inverse);
  }
}

// maxima[block]: of tokens block, block + blocks, ...
template <typename T>
__global__ void __launch_bounds__(kThreads)
    FindMaxima(const __grid_constant__ QuantizeKernelArgs args, float* maxima) {
  WaitForPriorGrid();
  StartNextGrid();
  float amax = 0;
  for (int token = static_cast<int>(blockIdx.x); token < args.tokens; token += gridDim.x) {
    for (int i = static_cast<int>(threadIdx.x) * kWidth; i < args.size; i += kThreads * kWidth) {
      amax = fmaxf(amax, Amax(Load<T>(args, token, i)));
    }
  }
  amax = BlockMax(amax);
  if (threadIdx.x == 0) maxima[blockIdx.x] = amax;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    QuantizeTensor(const __grid_constant__ QuantizeKernelArgs args, const float* maxima) {
  WaitForPriorGrid();
  StartNextGrid();
  float amax = 0;
  for (int i = static_cast<int>(threadIdx.x); i < gridDim.x; i += kThreads) {
    amax = fmaxf(amax, maxima[i]);
  }
  const float scale = ScaleOf(BlockMax(amax), args.power_of_two);
  if (blockIdx.x == 0 && threadIdx.x == 0) args.scale[0] = scale;
  const float inverse = __frcp_rn(scale);
  for (int token = static_cast<int>(blockIdx.x); token < args.tokens; token += gridDim.x) {
    for (int i = static_cast<int>(threadIdx.x) * kWidth; i < args.size; i += kThreads * kWidth) {
      Store(args, token, i, Load<T>(args, token, i), inverse);
    }
  }
}

}  // namespace

cudaError_t LaunchQuantizeGroups(const QuantizeKernelArgs& args, cudaStream_t stream) {
  constexpr int kCols = kBlockGroups * kGroup;
  const dim3 grid(static_cast<unsigned>((args.size + kCols - 1) / kCols),
                  static_cast<unsigned>((args.tokens + kBlockTokens - 1) / kBlockTokens));
  return Launch(args.x_bf16 ? QuantizeGroups<__nv_bfloat16> : QuantizeGroups<float>,
                {.grid = grid, .block = dim3(kThreads)}, stream, args);
}

cudaError_t LaunchQuantizeTokens(const QuantizeKernelArgs& args, cudaStream_t stream) {
  return Launch(args.x_bf16 ? QuantizeTokens<__nv_bfloat16> : QuantizeTokens<float>,
                {.grid = dim3(static_cast<unsigned>(args.tokens)), .block = dim3(kThreads)}, stream,
                args);
}

cudaError_t LaunchQuantizeTensor(const QuantizeKernelArgs& args, float* maxima,
                                 cudaStream_t stream) {
  const int blocks = args.tokens < 1                 ? 1
                     : args.tokens < kQuantizeMaxima ? args.tokens
                                                     : kQuantizeMaxima;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)};
  const cudaError_t error = Launch(args.x_bf16 ? FindMaxima<__nv_bfloat16> : FindMaxima<float>,
                                   shape, stream, args, maxima);
  if (error != cudaSuccess) return error;
  return Launch(args.x_bf16 ? QuantizeTensor<__nv_bfloat16> : QuantizeTensor<float>, shape, stream,
                args, static_cast<const float*>(maxima));
}

}  // namespace millrace
