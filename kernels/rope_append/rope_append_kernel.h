// What rope_append_kernel.cu and rope_append_cuda.cc both see.
#ifndef KERNELS_ROPE_APPEND_ROPE_APPEND_KERNEL_H_
#define KERNELS_ROPE_APPEND_ROPE_APPEND_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/rope_append/tokens.h"

namespace millrace {

enum class RopeAppendVariant : uint8_t {
  kF32,
  kF32Bf16,  // q, k and v f32, cache bf16
  kBf16F32,
  kBf16,
  kBf16Vector,  // the same, eight elements a load: every row 16-byte aligned, dim % 16 == 0
  kF32E4M3,     // cache E4M3
  kBf16E4M3,
  kBf16E4M3Vector,  // eight elements a load: rows of codes 8-byte, others 16-byte aligned
};

// Slots from slot_limit on count as none. REQUIRES: slot_limit < 2^31.
cudaError_t LaunchRopeAppend(RopeAppendVariant variant, const RopeAppendTokens& tokens,
                             cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_ROPE_APPEND_ROPE_APPEND_KERNEL_H_
