#include <cstdint>
#include <limits>

#include "kernels/core/rows_aligned.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/kv_append/kv_append_impl.h"
#include "kernels/kv_append/kv_append_kernel.h"
#include "kernels/kv_append/slots.h"

namespace millrace {
namespace {

KvAppendVariant ChooseVariant(const KvAppendArgs& args) {
  const bool to_f32 = args.k_cache.dtype == DType::kF32;
  const bool to_codes = args.k_cache.dtype == DType::kU8;
  if (args.k.dtype == DType::kF32) {
    if (to_codes) return KvAppendVariant::kF32E4M3;
    return to_f32 ? KvAppendVariant::kF32 : KvAppendVariant::kF32Bf16;
  }
  if (to_f32) return KvAppendVariant::kBf16F32;
  const bool aligned = args.k.dim(2) % 8 == 0 && RowsOfEights(args.k) && RowsOfEights(args.v) &&
                       RowsOfEights(args.k_cache) && RowsOfEights(args.v_cache);
  if (to_codes) return aligned ? KvAppendVariant::kBf16E4M3Vector : KvAppendVariant::kBf16E4M3;
  return aligned ? KvAppendVariant::kBf16Vector : KvAppendVariant::kBf16;
}

KvAppendRows Rows(const TensorView& from, const TensorView& cache, const TensorView& scale) {
  return {.from = from.data,
          .cache = cache.data,
          .scale = scale.as<const float>(),
          .token_stride = from.stride(0),
          .head_stride = from.stride(1),
          .page_stride = cache.stride(0),
          .cache_head_stride = cache.stride(1),
          .slot_stride = cache.stride(2)};
}

}  // namespace

absl::Status KvAppendCuda(const OpContext& ctx, const KvAppendArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  if (args.k.dim(0) > kMax || args.k.dim(1) > kMax || args.k.dim(2) > kMax ||
      SlotsOf(args.k_cache) > kMax) {
    return absl::UnimplementedError("KvAppend: a size of more than 2^30 on cuda");
  }
  const KvAppendKernelArgs kernel_args = {.k = Rows(args.k, args.k_cache, args.k_scale),
                                          .v = Rows(args.v, args.v_cache, args.v_scale),
                                          .slots = args.slots.as<const int64_t>(),
                                          .slot_limit = SlotsOf(args.k_cache),
                                          .tokens = static_cast<int32_t>(args.k.dim(0)),
                                          .heads = static_cast<int32_t>(args.k.dim(1)),
                                          .dim = static_cast<int32_t>(args.k.dim(2)),
                                          .page_tokens = static_cast<int32_t>(args.k_cache.dim(2))};
  return CudaStatus(LaunchKvAppend(ChooseVariant(args), kernel_args, ToCuda(ctx.stream)),
                    "KvAppend");
}

}  // namespace millrace
