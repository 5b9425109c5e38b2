// The rows of RmsNorm's device table, and what the CPU row's instruction sets share.
#ifndef KERNELS_RMS_NORM_RMS_NORM_IMPL_H_
#define KERNELS_RMS_NORM_RMS_NORM_IMPL_H_

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/rms_norm/rms_norm.h"

namespace millrace {

absl::Status RmsNormCpu(const OpContext& ctx, const RmsNormArgs& args);

// Some tokens of one call. Strides in elements.
struct RmsNormTokens {
  const void* x = nullptr;
  int64_t x_stride = 0;
  void* residual = nullptr;  // null without one
  int64_t residual_stride = 0;
  const void* weight = nullptr;
  void* y = nullptr;
  int64_t y_stride = 0;
  int64_t tokens = 0;
  int64_t width = 0;
  float eps = 0;
};

// [activations are bf16][weight is bf16]
struct RmsNormKernels {
  void (*norm[2][2])(const RmsNormTokens&);
};

extern const RmsNormKernels kRmsNormScalar;
extern const RmsNormKernels kRmsNormAvx2;
extern const RmsNormKernels kRmsNormAvx512;

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_RMS_NORM_IMPL_H_
