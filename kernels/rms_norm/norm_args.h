// RmsNormKernelArgs of the tensors of a call; for CUDA rows.
#ifndef KERNELS_RMS_NORM_NORM_ARGS_H_
#define KERNELS_RMS_NORM_NORM_ARGS_H_

#include <cstdint>

#include "kernels/core/tensor_view.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rms_norm/rms_norm_kernel.h"

namespace millrace {

// Whether the kernels that take eight elements of bf16 a load can have this call.
inline bool NormTakesVectors(const RmsNormArgs& args) {
  const auto on_16_bytes = [](const TensorView& t) {
    return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && (t.dim(0) <= 1 || t.stride(0) % 8 == 0);
  };
  return args.x.dtype == DType::kBF16 && args.weight.dtype == DType::kBF16 &&
         args.x.dim(1) % 8 == 0 && on_16_bytes(args.x) && on_16_bytes(args.y) &&
         reinterpret_cast<uintptr_t>(args.weight.data) % 16 == 0 &&
         (!args.residual || on_16_bytes(*args.residual));
}

// REQUIRES: at most 2^31 - 1 tokens and elements.
inline RmsNormKernelArgs NormKernelArgs(const RmsNormArgs& args) {
  return {.x = args.x.data,
          .residual = args.residual ? args.residual->data : nullptr,
          .weight = args.weight.data,
          .y = args.y.data,
          .x_stride = args.x.stride(0),
          .residual_stride = args.residual ? args.residual->stride(0) : 0,
          .y_stride = args.y.stride(0),
          .tokens = static_cast<int32_t>(args.x.dim(0)),
          .size = static_cast<int32_t>(args.x.dim(1)),
          .eps = args.eps};
}

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_NORM_ARGS_H_
