#include "kernels/latent_cache/latent_row.h"

#include <string>

namespace millrace {

void CheckLatentStore(ShapeChecker& checker, std::string_view name, const TensorView& store,
                      int64_t dim) {
  int64_t pages = kUnbound, heads = 1, rows = kUnbound;
  int64_t width = LatentRowWidth(store.dtype, dim);
  checker.Bind(name, store, {&pages, &heads, &rows, &width},
               {DType::kF32, DType::kBF16, DType::kU8});
  const std::string prefix = std::string(name) + ": ";
  checker.Require(store.dtype != DType::kU8 || dim == kFp8LatentDim,
                  prefix + "FP8 rows have 512 channels");
  checker.Require(store.stride(2) == store.dim(3), prefix + "rows of a page must have no gaps");
}

}  // namespace millrace
