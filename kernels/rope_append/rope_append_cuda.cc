#include <cstdint>
#include <limits>

#include "kernels/core/rows_aligned.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/kv_append/slots.h"
#include "kernels/rope_append/rope_append_impl.h"
#include "kernels/rope_append/rope_append_kernel.h"

namespace millrace {
namespace {

RopeAppendVariant ChooseVariant(const RopeAppendArgs& args) {
  const bool to_f32 = args.k_cache.dtype == DType::kF32;
  const bool to_codes = args.k_cache.dtype == DType::kU8;
  if (args.q.dtype == DType::kF32) {
    if (to_codes) return RopeAppendVariant::kF32E4M3;
    return to_f32 ? RopeAppendVariant::kF32 : RopeAppendVariant::kF32Bf16;
  }
  if (to_f32) return RopeAppendVariant::kBf16F32;
  const bool aligned = args.q.dim(2) % 16 == 0 && RowsOfEights(args.q) && RowsOfEights(args.k) &&
                       RowsOfEights(args.v) && RowsOfEights(args.k_cache) &&
                       RowsOfEights(args.v_cache);
  if (to_codes) {
    return aligned ? RopeAppendVariant::kBf16E4M3Vector : RopeAppendVariant::kBf16E4M3;
  }
  return aligned ? RopeAppendVariant::kBf16Vector : RopeAppendVariant::kBf16;
}

}  // namespace

absl::Status RopeAppendCuda(const OpContext& ctx, const RopeAppendArgs& args) {
  if (SlotsOf(args.k_cache) > std::numeric_limits<int32_t>::max()) {
    return absl::UnimplementedError("RopeAppend: a cache of more than 2^31 - 1 tokens on cuda");
  }
  return CudaStatus(LaunchRopeAppend(ChooseVariant(args), TokensOf(args), ToCuda(ctx.stream)),
                    "RopeAppend");
}

}  // namespace millrace
