// SwigluKernelArgs of the tensors of a call; for CUDA rows.
#ifndef KERNELS_SWIGLU_GATED_ARGS_H_
#define KERNELS_SWIGLU_GATED_ARGS_H_

#include <cstdint>

#include "kernels/core/tensor_view.h"
#include "kernels/swiglu/swiglu_impl.h"
#include "kernels/swiglu/swiglu_kernel.h"

namespace millrace {

// Whether the kernels that take eight elements of bf16 a load can have this call.
inline bool SwigluTakesVectors(const SwigluArgs& args) {
  const auto on_16_bytes = [](const TensorView& t) {
    return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && (t.dim(0) <= 1 || t.stride(0) % 8 == 0);
  };
  return args.x.dtype == DType::kBF16 && SwigluBlock(args) % 8 == 0 && on_16_bytes(args.x) &&
         on_16_bytes(args.y);
}

// REQUIRES: at most 2^31 - 1 outputs.
inline SwigluKernelArgs GatedKernelArgs(const SwigluArgs& args) {
  return {.x = args.x.data,
          .y = args.y.data,
          .x_stride = args.x.stride(0),
          .y_stride = args.y.stride(0),
          .tokens = static_cast<int32_t>(args.y.dim(0)),
          .size = static_cast<int32_t>(args.y.dim(1)),
          .block = static_cast<int32_t>(SwigluBlock(args)),
          .limit = SwigluLimit(args)};
}

}  // namespace millrace

#endif  // KERNELS_SWIGLU_GATED_ARGS_H_
