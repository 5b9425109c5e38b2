// Attention in f32 for operands that the other kernels do not take. One block a token and query
// head; its warps take keys in turn, the elements of a row lie along the lanes.
#include <cuda_fp16.h>

#include "kernels/paged_attention/paged_attention_kernel_join.cuh"
#include "kernels/ptx/fp8.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxDim = 256;
constexpr int kPerLane = kMaxDim / 32;

__device__ __forceinline__ float Widen(float x) { return x; }
__device__ __forceinline__ float Widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float Widen(E4M3 x) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(WidenE4M3Pair(x.bits))));
}
__device__ __forceinline__ void Narrow(float x, float* to) { *to = x; }
__device__ __forceinline__ void Narrow(float x, __nv_bfloat16* to) { *to = __float2bfloat16(x); }

// The last sequence that starts at or before `token`.
__device__ int SequenceOf(const PagedPlainArgs& args, int token) {
  int low = 0, high = args.sequences;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (args.q_start[middle] <= token ? low : high) = middle;
  }
  return low;
}

struct Softmax {
  float top = -INFINITY;
  float total = 0;
  float o[kPerLane] = {};

  template <typename C>
  __device__ void Add(float score, const C* value, int dim) {
    const float most = fmaxf(top, score);
    const float base = most == -INFINITY ? 0 : most;
    const float rescale = expf(top - base), weight = expf(score - base);
    top = most;
    total = total * rescale + weight;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int d = threadIdx.x % 32 + 32 * i;
      o[i] = o[i] * rescale + (d < dim ? weight * Widen(value[d]) : 0);
    }
  }
};

template <typename Q, typename C>
__global__ void __launch_bounds__(kWarps * 32)
    PagedPlain(const __grid_constant__ PagedPlainArgs plain) {
  __shared__ Softmax joined[kWarps][32];
  const PagedAttentionKernelArgs& args = plain.common;
  WaitForPriorGrid();
  StartNextGrid();
  const int heads = args.kv_heads * args.group;
  const int token = blockIdx.x / heads, head = blockIdx.x % heads;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = args.head_dim;
  const int sequence = SequenceOf(plain, token);
  if (token >= plain.q_start[sequence + 1]) return;  // padding
  const int visible = plain.kv_len[sequence] - plain.q_start[sequence + 1] + token + 1;
  const int32_t* table = args.page_table + sequence * args.table_row;
  const Q* q_row = static_cast<const Q*>(args.q) + token * args.q_token + head * args.q_head;
  const int kv_head = head / args.group;
  const C* k_head = static_cast<const C*>(args.k_cache) + kv_head * args.k_head;
  const C* v_head = static_cast<const C*>(args.v_cache) + kv_head * args.v_head;
  float q[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) q[i] = lane + 32 * i < dim ? Widen(q_row[lane + 32 * i]) : 0;

  const float k_scale = ScaleOf(args.k_scale, kv_head);
  const float v_scale = ScaleOf(args.v_scale, kv_head);
  Softmax softmax;
  for (int key = warp; key < visible; key += kWarps) {
    const int64_t page = table[key / args.page_tokens], offset = key % args.page_tokens;
    const C* k = k_head + page * args.k_page + offset * args.k_token;
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (lane + 32 * i < dim) dot += q[i] * Widen(k[lane + 32 * i]);
    }
#pragma unroll
    for (int x = 16; x > 0; x /= 2) dot += __shfl_xor_sync(~0u, dot, x);
    softmax.Add(dot * (args.scale * k_scale), v_head + page * args.v_page + offset * args.v_token,
                dim);
  }
  joined[warp][lane] = softmax;
  __syncthreads();
  if (warp != 0) return;
  float top = -INFINITY;
  for (const auto& part : joined) top = fmaxf(top, part[lane].top);
  const float base = top == -INFINITY ? 0 : top;
  float total = 0, o[kPerLane] = {};
  for (const auto& part : joined) {
    const float weight = expf(part[lane].top - base);
    total += weight * part[lane].total;
    for (int i = 0; i < kPerLane; ++i) o[i] += weight * part[lane].o[i];
  }
  Q* out = static_cast<Q*>(args.out) + token * args.out_token + head * args.out_head;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (lane + 32 * i < dim) Narrow(o[i] * (v_scale / total), out + lane + 32 * i);
  }
}

using Kernel = void (*)(PagedPlainArgs);
// By dtype of the queries (f32, bf16) and of the cache (f32, bf16, E4M3).
constexpr Kernel kKernels[2][3] = {
    {PagedPlain<float, float>, PagedPlain<float, __nv_bfloat16>, PagedPlain<float, E4M3>},
    {PagedPlain<__nv_bfloat16, float>, PagedPlain<__nv_bfloat16, __nv_bfloat16>,
     PagedPlain<__nv_bfloat16, E4M3>},
};

}  // namespace

cudaError_t LaunchPagedPlain(const PagedPlainArgs& args, cudaStream_t stream) {
  const int heads = args.common.kv_heads * args.common.group;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.tokens * heads)),
                             .block = dim3(kWarps * 32)};
  return Launch(kKernels[args.q_is_bf16][static_cast<int>(args.cache)], shape, stream, args);
}

}  // namespace millrace
