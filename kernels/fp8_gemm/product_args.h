// Fp8GemmKernelArgs of the tensors of a call; for CUDA rows.
#ifndef KERNELS_FP8_GEMM_PRODUCT_ARGS_H_
#define KERNELS_FP8_GEMM_PRODUCT_ARGS_H_

#include <cstdint>
#include <optional>

#include "kernels/core/tensor_view.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel.h"

namespace millrace {

inline Fp8GemmAddend Fp8GemmAddendOf(const std::optional<TensorView>& t) {
  if (!t) return {};
  return {.data = t->data, .stride = t->stride(0), .bf16 = t->dtype == DType::kBF16};
}

// REQUIRES: sizes of at most 2^31 - 1.
inline Fp8GemmKernelArgs Fp8GemmProductArgs(const Fp8GemmArgs& args) {
  const auto vector_stride = [](const TensorView& scale) { return int64_t{scale.dim(0) != 1}; };
  const bool blocks = args.scales == Fp8GemmScales::kBlocks;
  return {.x = args.x.as<uint8_t>(),
          .weight = args.weight.as<uint8_t>(),
          .x_scale = args.x_scale.as<float>(),
          .weight_scale = args.weight_scale.as<float>(),
          .y = args.y.data,
          .x_stride = args.x.stride(0),
          .weight_stride = args.weight.stride(0),
          .y_stride = args.y.stride(0),
          .x_scale_stride = blocks ? args.x_scale.stride(0) : vector_stride(args.x_scale),
          .weight_scale_stride =
              blocks ? args.weight_scale.stride(0) : vector_stride(args.weight_scale),
          .tokens = static_cast<int32_t>(args.x.dim(0)),
          .inputs = static_cast<int32_t>(args.x.dim(1)),
          .outputs = static_cast<int32_t>(args.weight.dim(0)),
          .bias = Fp8GemmAddendOf(args.bias),
          .residual = Fp8GemmAddendOf(args.residual),
          .blocks = blocks,
          .y_bf16 = args.y.dtype == DType::kBF16};
}

}  // namespace millrace

#endif  // KERNELS_FP8_GEMM_PRODUCT_ARGS_H_
