// The rows of RopeAppend's device table, and what the CPU row's instruction sets share.
#ifndef KERNELS_ROPE_APPEND_ROPE_APPEND_IMPL_H_
#define KERNELS_ROPE_APPEND_ROPE_APPEND_IMPL_H_

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/rope_append/rope_append.h"
#include "kernels/rope_append/tokens.h"

namespace millrace {

absl::Status RopeAppendCpu(const OpContext& ctx, const RopeAppendArgs& args);
absl::Status RopeAppendCuda(const OpContext& ctx, const RopeAppendArgs& args);

// REQUIRES: sizes below 2^31.
RopeAppendTokens TokensOf(const RopeAppendArgs& args);

// Tokens [begin, end). [q, k and v are bf16][the cache is f32, bf16, E4M3]
using RopeAppendKernels = void (*const[2][3])(const RopeAppendTokens&, int64_t begin, int64_t end);

extern const RopeAppendKernels kRopeAppendScalar;
extern const RopeAppendKernels kRopeAppendAvx2;
extern const RopeAppendKernels kRopeAppendAvx512;

}  // namespace millrace

#endif  // KERNELS_ROPE_APPEND_ROPE_APPEND_IMPL_H_
