// The rows of Rope's device table, and what the CPU row's instruction sets share.
#ifndef KERNELS_ROPE_ROPE_IMPL_H_
#define KERNELS_ROPE_ROPE_IMPL_H_

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/rope/rope.h"

namespace millrace {

absl::Status RopeCpu(const OpContext& ctx, const RopeArgs& args);
absl::Status RopeCuda(const OpContext& ctx, const RopeArgs& args);

// Some tokens of one call. Strides in elements.
struct RopeTokens {
  void* x = nullptr;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  const int32_t* positions = nullptr;
  const float* inv_freq = nullptr;
  int64_t tokens = 0;
  int32_t heads = 0;
  int32_t dim = 0;
};

struct RopeKernels {
  void (*rotate_f32)(const RopeTokens&);
  void (*rotate_bf16)(const RopeTokens&);
};

extern const RopeKernels kRopeScalar;
extern const RopeKernels kRopeAvx2;
extern const RopeKernels kRopeAvx512;

}  // namespace millrace

#endif  // KERNELS_ROPE_ROPE_IMPL_H_
