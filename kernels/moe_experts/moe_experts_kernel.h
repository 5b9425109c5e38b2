// What the .cu files and moe_experts_cuda.cc both see.
#ifndef KERNELS_MOE_EXPERTS_MOE_EXPERTS_KERNEL_H_
#define KERNELS_MOE_EXPERTS_MOE_EXPERTS_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

enum class MoeFormat : uint8_t { kF32, kBF16, kFp8, kMxFp4, kNvFp4 };

// A StoredMatrix of one matrix an expert.
struct MoeMatrices {
  const void* values = nullptr;
  const void* scales = nullptr;
  const float* factors = nullptr;
  int32_t count = 0, rows = 0, cols = 0;
  int32_t tile_row = 0, tile_col = 0;      // kFp8
  int32_t scale_rows = 0, scale_cols = 0;  // of a matrix
  MoeFormat format = MoeFormat::kF32;
  bool f32_scales = false, divides = false;
};

// Choices of one expert, which lie one behind the other.
inline constexpr int kMoeItemChoices = 8;  // at most
struct MoeItem {
  int32_t expert, first, choices, unused;
};

// Who goes where, made on the device for all kernels of a call. A choice is a token and one of its
// experts, number token * chosen + k; those of this rank are sorted by expert, then by number.
struct MoePlan {
  int32_t* sizes = nullptr;  // items, choices of this rank
  MoeItem* items = nullptr;
  int32_t* order = nullptr;  // place -> choice
  int32_t* place = nullptr;  // choice -> place, -1: another rank's
};
// Sizes in `sizes`.
inline constexpr int kMoeItems = 0, kMoeChoices = 1;

struct MoeKernelArgs {
  const void* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* experts = nullptr;
  int64_t experts_stride = 0;
  const float* weights = nullptr;
  int64_t weights_stride = 0;
  int32_t tokens = 0, chosen = 0, first_expert = 0;
  bool x_bf16 = false;
  bool rounds = false;  // activations as ActivationRounding::kFp8Per128 says
  float limit = 0;
  MoeMatrices gate, up, down;
  MoePlan plan;
  float* prepared = nullptr;  // [tokens, D]; for the plain kernels
  float* hidden = nullptr;    // [choices, I] in the plan's order
  float* sums = nullptr;      // [choices, D] likewise
  float* y = nullptr;
  int64_t y_stride = 0;
};
static_assert(std::is_trivially_copyable_v<MoeKernelArgs>);

// Choices that LaunchMoePlan() takes, and experts of a rank.
inline constexpr int kMoeMostChoices = 16384, kMoeMostExperts = 1024;

cudaError_t LaunchMoePlan(const MoeKernelArgs& args, cudaStream_t stream);

// Hidden from x, and sums from hidden: any format, shape and device; slow.
cudaError_t LaunchMoePlainGateUp(const MoeKernelArgs& args, cudaStream_t stream);
cudaError_t LaunchMoePlainDown(const MoeKernelArgs& args, cudaStream_t stream);

// Likewise. REQUIRES: sm_90, CoversMoeFp4() of each matrix, rounds.
cudaError_t LaunchMoeFp4GateUp(const MoeKernelArgs& args, int multiprocessors, cudaStream_t stream);
cudaError_t LaunchMoeFp4Down(const MoeKernelArgs& args, int multiprocessors, cudaStream_t stream);

// y from sums.
cudaError_t LaunchMoeCombine(const MoeKernelArgs& args, cudaStream_t stream);

// Inputs whose codes a warp of the kernels for NVFP4 reads at once, and the most warps that share a
// row.
inline constexpr int kMoeFp4Piece = 256, kMoeFp4Warps = 16, kMoeFp4Pieces = 2 * kMoeFp4Warps;

inline bool CoversMoeFp4(const MoeMatrices& m) {
  return m.format == MoeFormat::kNvFp4 && m.cols % kMoeFp4Piece == 0 &&
         m.cols / kMoeFp4Piece <= kMoeFp4Pieces && m.rows % 16 == 0 &&
         reinterpret_cast<uintptr_t>(m.values) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(m.scales) % 16 == 0;
}

}  // namespace millrace

#endif  // KERNELS_MOE_EXPERTS_MOE_EXPERTS_KERNEL_H_
