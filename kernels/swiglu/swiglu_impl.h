// The rows of Swiglu's device table, and what the CPU row's instruction sets share.
#ifndef KERNELS_SWIGLU_SWIGLU_IMPL_H_
#define KERNELS_SWIGLU_SWIGLU_IMPL_H_

#include <cstdint>
#include <limits>

#include "kernels/core/dtype.h"
#include "kernels/swiglu/swiglu.h"

namespace millrace {

absl::Status SwigluCpu(const OpContext& ctx, const SwigluArgs& args);
absl::Status SwigluCuda(const OpContext& ctx, const SwigluArgs& args);

// Columns of one block of gates, 1 to I.
inline int64_t SwigluBlock(const SwigluArgs& args) {
  return args.block == 0 ? args.y.dim(1) : args.block;
}

// What gate and up are clamped to; infinity leaves them alone.
inline float SwigluLimit(const SwigluArgs& args) {
  return args.limit > 0 ? args.limit : std::numeric_limits<float>::infinity();
}

// Some rows of one call. Strides in elements.
struct SwigluRows {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t size = 0;   // I
  int64_t block = 0;  // 1 to I
  float limit = 0;    // SwigluLimit
};

// [x is bf16]
using SwigluKernels = void (*const[2])(const SwigluRows&);

extern const SwigluKernels kSwigluScalar;
extern const SwigluKernels kSwigluAvx2;
extern const SwigluKernels kSwigluAvx512;

}  // namespace millrace

#endif  // KERNELS_SWIGLU_SWIGLU_IMPL_H_
