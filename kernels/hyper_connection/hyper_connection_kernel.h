// What the hyper-connections' .cu files and hyper_connection_cuda.cc both see.
#ifndef KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_KERNEL_H_
#define KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// The order of a token's sums, the same however many tokens a call has: a piece of the flattened
// streams is summed by one warp, the pieces of a group one after the other, then the groups.
inline constexpr int kHyperPiece = 128;
inline constexpr int kHyperGroupPieces = 8;
inline constexpr int kHyperGroup = kHyperPiece * kHyperGroupPieces;

// Most rows of fn that the kernels with tensor cores take: four streams.
inline constexpr int kHyperTensorRows = 24;

// Strides in elements.
struct HyperStreams {
  void* data = nullptr;
  int64_t token_stride = 0;
  int64_t stride = 0;  // from stream to stream
  int32_t tokens = 0;
  int32_t count = 0;
  int32_t width = 0;
};

// The products of the flattened streams with fn, not yet scaled, and behind them the sum of
// squares.
struct HyperMixKernelArgs {
  HyperStreams streams;
  const float* fn = nullptr;
  int64_t fn_stride = 0;
  int32_t rows = 0;
  float* sums = nullptr;  // [tokens, parts, rows + 1], parts as the variant says
};
static_assert(std::is_trivially_copyable_v<HyperMixKernelArgs>);

enum class HyperMixVariant : uint8_t {
  kF32,     // parts are groups
  kBf16,    // likewise
  kGroups,  // likewise; bf16 streams on 16 bytes of a multiple of kHyperPiece elements, fn on 16
            // bytes, at most kHyperTensorRows rows
  kPieces,  // parts are pieces; operands as for kGroups
};

// What follows from the sums. Without `post` only y is written, with `rows` == streams.count.
struct HyperCollapseKernelArgs {
  HyperStreams streams;
  const float* sums = nullptr;  // [tokens, parts, rows + 1]
  int32_t parts = 0;
  int32_t group_parts = 0;  // of a group: 1 or kHyperGroupPieces; the last group may have fewer
  int32_t rows = 0;
  const float* base = nullptr;
  const float* scale = nullptr;
  void* y = nullptr;
  int64_t y_stride = 0;
  float* post = nullptr;
  int64_t post_stride = 0;
  float* comb = nullptr;
  int64_t comb_token_stride = 0;
  int64_t comb_stride = 0;
  float norm_eps = 0;
  float hc_eps = 0;
  int32_t sinkhorn_iters = 0;
};
static_assert(std::is_trivially_copyable_v<HyperCollapseKernelArgs>);

struct HyperBeginKernelArgs {
  const void* x = nullptr;
  int64_t x_stride = 0;
  HyperStreams streams;
};
static_assert(std::is_trivially_copyable_v<HyperBeginKernelArgs>);

struct HyperOutKernelArgs {
  const void* out = nullptr;
  int64_t out_stride = 0;
  const float* post = nullptr;
  int64_t post_stride = 0;
  const float* comb = nullptr;
  int64_t comb_token_stride = 0;
  int64_t comb_stride = 0;
  HyperStreams streams;
};
static_assert(std::is_trivially_copyable_v<HyperOutKernelArgs>);

enum class HyperElements : uint8_t {
  kF32,
  kBf16,
  kBf16Vector,  // eight a load: every row on 16 bytes, width % 8 == 0
};

cudaError_t LaunchHyperMix(HyperMixVariant variant, const HyperMixKernelArgs& args,
                           cudaStream_t stream);
cudaError_t LaunchHyperCollapse(HyperElements elements, const HyperCollapseKernelArgs& args,
                                cudaStream_t stream);
cudaError_t LaunchHyperBegin(HyperElements elements, const HyperBeginKernelArgs& args,
                             cudaStream_t stream);
cudaError_t LaunchHyperOut(HyperElements elements, const HyperOutKernelArgs& args,
                           cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_KERNEL_H_
