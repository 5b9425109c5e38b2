// A PagedBatch in host memory, for the CPU rows.
#ifndef KERNELS_LATENT_CACHE_PAGED_BATCH_CPU_H_
#define KERNELS_LATENT_CACHE_PAGED_BATCH_CPU_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/latent_cache/paged_batch.h"

namespace millrace {

// What a batch must fit.
struct PagedLimits {
  int64_t tokens = 0;  // of the step
  int64_t pages = 0;   // of the cache
  int64_t page_tokens = 0;
};

// InvalidArgument, naming `op`, for the first length or page that is out of its range.
absl::Status CheckPagedBatchValues(std::string_view op, const PagedBatch& batch,
                                   const PagedLimits& limits);

// Any thread. REQUIRES of all: CheckPagedBatchValues passed. Borrows.
class PagedBatchCpu final {
 public:
  explicit PagedBatchCpu(const PagedBatch& batch)
      : sequences_(batch.kv_len.dim(0)),
        q_start_(batch.q_start.as<int32_t>()),
        kv_len_(batch.kv_len.as<int32_t>()),
        page_table_(batch.page_table) {}

  int64_t sequences() const { return sequences_; }
  // Tokens of the step that belong to sequences: [0, tokens()).
  int64_t tokens() const { return q_start_[sequences_]; }
  // Padding has none, and its length means nothing.
  bool has_tokens(int64_t b) const { return q_start_[b] < q_start_[b + 1]; }
  // The sequence of token t. REQUIRES: 0 <= t < tokens().
  int64_t SequenceOf(int64_t t) const;
  // Token t of sequence b.
  int64_t PositionOf(int64_t t, int64_t b) const { return kv_len_[b] - q_start_[b + 1] + t; }
  // The first position of sequence b that this step brings, the first after its last, and the
  // token that stands at position 0, were it in the step.
  int64_t FirstPosition(int64_t b) const { return PositionOf(q_start_[b], b); }
  int64_t EndPosition(int64_t b) const { return kv_len_[b]; }
  int64_t TokenOfZero(int64_t b) const { return int64_t{q_start_[b + 1]} - kv_len_[b]; }
  const int32_t* Pages(int64_t b) const {
    return page_table_.as<int32_t>() + b * page_table_.stride(0);
  }

 private:
  int64_t sequences_;
  const int32_t* q_start_;
  const int32_t* kv_len_;
  TensorView page_table_;
};

}  // namespace millrace

#endif  // KERNELS_LATENT_CACHE_PAGED_BATCH_CPU_H_
