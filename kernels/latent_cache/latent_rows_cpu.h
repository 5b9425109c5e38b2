// A store of latent rows in host memory, as the code of one instruction set takes it: plain data,
// so that no function of a shared header is compiled there.
#ifndef KERNELS_LATENT_CACHE_LATENT_ROWS_CPU_H_
#define KERNELS_LATENT_CACHE_LATENT_ROWS_CPU_H_

#include <cstdint>

#include "kernels/core/tensor_view.h"

namespace millrace {

struct LatentRows {
  const char* data = nullptr;
  int64_t page_bytes = 0;  // from page to page
  int64_t page_rows = 0;
  DType dtype = DType::kF32;
};

// REQUIRES: a store that passed CheckLatentStore (latent_row.h).
inline LatentRows LatentRowsOf(const TensorView& store) {
  return {.data = store.as<const char>(),
          .page_bytes = store.stride(0) * DTypeBytes(store.dtype),
          .page_rows = store.dim(2),
          .dtype = store.dtype};
}

}  // namespace millrace

#endif  // KERNELS_LATENT_CACHE_LATENT_ROWS_CPU_H_
