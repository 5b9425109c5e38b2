// The rows of Swiglu's device table, and what the CPU row's instruction sets share.
#ifndef KERNELS_SWIGLU_SWIGLU_IMPL_H_
#define KERNELS_SWIGLU_SWIGLU_IMPL_H_

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/swiglu/swiglu.h"

namespace millrace {

absl::Status SwigluCpu(const OpContext& ctx, const SwigluArgs& args);

// `width` elements of one token: out = silu(gate) * up.
struct SwigluKernels {
  void (*f32)(const float* gate, const float* up, int64_t width, float* out);
  void (*bf16)(const BFloat16* gate, const BFloat16* up, int64_t width, BFloat16* out);
};

extern const SwigluKernels kSwigluScalar;
extern const SwigluKernels kSwigluAvx2;
extern const SwigluKernels kSwigluAvx512;

}  // namespace millrace

#endif  // KERNELS_SWIGLU_SWIGLU_IMPL_H_
