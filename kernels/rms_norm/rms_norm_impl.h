// The rows of RmsNorm's device table, and what the CPU row's instruction sets share.
#ifndef KERNELS_RMS_NORM_RMS_NORM_IMPL_H_
#define KERNELS_RMS_NORM_RMS_NORM_IMPL_H_

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/rms_norm/rms_norm.h"

namespace millrace {

absl::Status RmsNormCpu(const OpContext& ctx, const RmsNormArgs& args);
absl::Status RmsNormCuda(const OpContext& ctx, const RmsNormArgs& args);

// Some rows of one call. Strides in elements.
struct RmsNormRows {
  const void* x = nullptr;
  void* residual = nullptr;  // or null
  const void* weight = nullptr;
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t residual_stride = 0;
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t size = 0;
  float eps = 0;
};

// [x is bf16][weight is bf16]
using RmsNormKernels = void (*const[2][2])(const RmsNormRows&);

extern const RmsNormKernels kRmsNormScalar;
extern const RmsNormKernels kRmsNormAvx2;
extern const RmsNormKernels kRmsNormAvx512;

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_RMS_NORM_IMPL_H_
