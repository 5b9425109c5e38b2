// What moe_exchange_kernel_*.cu and moe_exchange_cuda.cc both see.
#ifndef KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_H_
#define KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// Largest number of ranks and of experts on CUDA.
inline constexpr int kMaxExchangeRanks = 32;
inline constexpr int kMaxExchangeExperts = 32768;

// Who does what: each block takes a run of tokens, and of their channels every `parts`-th piece.
struct ExchangePlan {
  int32_t blocks = 0;
  int32_t block_tokens = 0;
  int32_t parts = 0;
};

// Which rank holds an expert, by multiplication. x / d is the upper half of 2 x * inverse(d)
// where x * d < 2^31.
struct RankOfExpert {
  int32_t num_experts = 0;
  int32_t long_ranks = 0;    // ranks that hold one expert more than the others,
  int32_t long_experts = 0;  // and all of theirs
  uint32_t long_inverse = 0;
  uint32_t short_inverse = 0;
};

constexpr uint32_t ExchangeInverse(int32_t d) { return (uint32_t{1} << 31) / d + 1; }

// As MoeDispatchArgs. Strides in elements.
struct DispatchKernelArgs {
  const void* x = nullptr;
  const int32_t* experts = nullptr;
  const float* weights = nullptr;
  float* rows = nullptr;
  int32_t* source = nullptr;
  int32_t* counts = nullptr;
  int64_t x_stride = 0;
  int64_t experts_stride = 0;
  int64_t weights_stride = 0;
  int32_t width = 0;  // of rows
  int32_t tokens = 0;
  int32_t hidden = 0;
  int32_t chosen = 0;
  int32_t ranks = 0;
  RankOfExpert rank_of;
  ExchangePlan plan;
};

// As MoeCombineArgs.
struct CombineKernelArgs {
  const float* rows = nullptr;
  const int32_t* source = nullptr;
  float* y = nullptr;
  int64_t rows_stride = 0;
  int64_t y_stride = 0;
  int32_t num_rows = 0;
  int32_t tokens = 0;
  int32_t hidden = 0;
  ExchangePlan plan;
};
static_assert(std::is_trivially_copyable_v<DispatchKernelArgs> &&
              std::is_trivially_copyable_v<CombineKernelArgs>);

enum class DispatchVariant : uint8_t {
  kF32,
  kBf16,
  kF32Bulk,   // sm_90, four elements a load: hidden and width % 4 == 0, rows of x begin on four
  kBf16Bulk,  // elements, rows of messages on 16 bytes
};

cudaError_t LaunchDispatch(DispatchVariant variant, const DispatchKernelArgs& args,
                           cudaStream_t stream);
// `aligned`: hidden % 4 == 0, rows and y aligned to 16 bytes.
cudaError_t LaunchCombine(bool aligned, const CombineKernelArgs& args, cudaStream_t stream);

inline constexpr int kDispatchThreads = 512;
inline constexpr int kCombineThreads = 384;
// Blocks that a multiprocessor is given where there are enough tokens.
inline constexpr int kDispatchBlocks = 1;
inline constexpr int kCombineBlocks = 2;
// Words that a lane of these kernels has in flight; a warp's piece of a row is 32 lanes' words.
inline constexpr int kDispatchWords = 4;
inline constexpr int kCombineWords = 2;

}  // namespace millrace

#endif  // KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_H_
