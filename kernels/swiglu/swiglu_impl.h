// The rows of Swiglu's device table, and what the CPU row's instruction sets share.
#ifndef KERNELS_SWIGLU_SWIGLU_IMPL_H_
#define KERNELS_SWIGLU_SWIGLU_IMPL_H_

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/swiglu/swiglu.h"

namespace millrace {

absl::Status SwigluCpu(const OpContext& ctx, const SwigluArgs& args);

// Some rows of one call. Strides in elements.
struct SwigluRows {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t size = 0;  // I
};

// [x is bf16]
using SwigluKernels = void (*const[2])(const SwigluRows&);

extern const SwigluKernels kSwigluScalar;
extern const SwigluKernels kSwigluAvx2;
extern const SwigluKernels kSwigluAvx512;

}  // namespace millrace

#endif  // KERNELS_SWIGLU_SWIGLU_IMPL_H_
