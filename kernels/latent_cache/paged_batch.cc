#include "kernels/latent_cache/paged_batch.h"

namespace millrace {

void CheckPagedBatch(ShapeChecker& checker, const PagedBatch& batch) {
  int64_t starts = kUnbound, max_pages = kUnbound;
  checker.Bind("q_start", batch.q_start, {&starts}, {DType::kI32})
      .Require(starts != 0, "q_start must have one element more than there are sequences");
  int64_t sequences = starts - 1;
  checker.Bind("kv_len", batch.kv_len, {&sequences}, {DType::kI32})
      .Bind("page_table", batch.page_table, {&sequences, &max_pages}, {DType::kI32});
}

}  // namespace millrace
