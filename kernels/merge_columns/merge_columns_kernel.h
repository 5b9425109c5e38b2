// What merge_columns_kernel.cu and merge_columns_cuda.cc both see.
#ifndef KERNELS_MERGE_COLUMNS_MERGE_COLUMNS_KERNEL_H_
#define KERNELS_MERGE_COLUMNS_MERGE_COLUMNS_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

struct MergeColumnsKernelArgs {
  static constexpr int kMaxParts = 64;

  const float* parts = nullptr;
  float* y = nullptr;
  int64_t y_stride = 0;  // elements
  int32_t rows = 0;
  int32_t num_parts = 0;              // 1 to kMaxParts
  int32_t first[kMaxParts + 1] = {};  // column of y at which part p begins; then the total
};
static_assert(std::is_trivially_copyable_v<MergeColumnsKernelArgs>);

enum class MergeColumnsVariant : uint8_t {
  kScalar,
  kVector,  // parts and y 16-byte aligned; every first[p] and y_stride a multiple of 4
};

// The largest number of rows of one launch.
inline constexpr int kMergeColumnsMaxRows = 65535;

cudaError_t LaunchMergeColumns(MergeColumnsVariant variant, const MergeColumnsKernelArgs& args,
                               cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_MERGE_COLUMNS_MERGE_COLUMNS_KERNEL_H_
