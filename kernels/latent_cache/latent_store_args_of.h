// A store's description for kernels.
#ifndef KERNELS_LATENT_CACHE_LATENT_STORE_ARGS_OF_H_
#define KERNELS_LATENT_CACHE_LATENT_STORE_ARGS_OF_H_

#include "kernels/core/rows_aligned.h"
#include "kernels/core/tensor_view.h"
#include "kernels/latent_cache/latent_store_args.h"

namespace millrace {

// REQUIRES: a store of rows of `dim` channels that passed CheckLatentStore (latent_row.h), with
// fewer than 2^31 rows.
inline LatentStoreArgs LatentStoreArgsOf(const TensorView& store, int64_t dim) {
  const bool fp8 = store.dtype == DType::kU8;
  const LatentRowType floats =
      store.dtype == DType::kF32 ? LatentRowType::kF32 : LatentRowType::kBf16;
  return {.data = store.data,
          .page_stride = store.stride(0),
          .pages = static_cast<int32_t>(store.dim(2) == 0 ? 0 : store.dim(0)),
          .page_rows = static_cast<int32_t>(store.dim(2)),
          .dim = static_cast<int32_t>(dim),
          .type = fp8 ? LatentRowType::kFp8 : floats,
          .aligned = RowsAligned(store, fp8 ? 8 : 16)};
}

}  // namespace millrace

#endif  // KERNELS_LATENT_CACHE_LATENT_STORE_ARGS_OF_H_
