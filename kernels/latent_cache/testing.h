// What the tests of the latent cache's ops share: batches with scattered pages, and stores of rows
// with the test's own reading of the FP8 layout.
#ifndef KERNELS_LATENT_CACHE_TESTING_H_
#define KERNELS_LATENT_CACHE_TESTING_H_

#include <cstdint>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/latent_cache/paged_batch.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/test_rng.h"

namespace millrace {

// A sequence's part of a step.
struct SequenceStep {
  int64_t before = 0;  // tokens of earlier steps
  int64_t tokens = 0;  // of this one
};

// Pages of sequences, in no order and with some to spare; fixed over the steps of a test.
class ScatteredPages final {
 public:
  // Room for `lengths` tokens of each sequence.
  ScatteredPages(const std::vector<int64_t>& lengths, int64_t page_tokens, uint64_t seed);

  int64_t page_tokens() const { return page_tokens_; }
  int64_t num_pages() const { return num_pages_; }
  int64_t sequences() const { return static_cast<int64_t>(pages_.size()); }
  int64_t max_pages() const;
  const std::vector<int64_t>& pages(int64_t b) const { return pages_[static_cast<size_t>(b)]; }
  // Where the row of position p is, in a store of a row for every `tokens_per_row` tokens:
  // page * rows of a page + row.
  int64_t RowOf(int64_t b, int64_t p, int64_t tokens_per_row = 1) const;

 private:
  int64_t page_tokens_;
  int64_t num_pages_ = 0;
  std::vector<std::vector<int64_t>> pages_;
};

// One step of the sequences of `pages`, step[b] being sequence order[b]'s; without an order, b's.
class StepBatch final {
 public:
  StepBatch(Device& device, const ScatteredPages& pages, const std::vector<SequenceStep>& step,
            std::vector<int64_t> order = {});

  PagedBatch view() const {
    return {.q_start = q_start_.view(), .kv_len = kv_len_.view(), .page_table = table_.view()};
  }
  int64_t tokens() const { return static_cast<int64_t>(sequence_.size()); }
  // Of the step's token t: its sequence in `pages`, and its position.
  int64_t sequence(int64_t t) const { return sequence_[static_cast<size_t>(t)]; }
  int64_t position(int64_t t) const { return position_[static_cast<size_t>(t)]; }
  ::testing::AssertionResult GuardsIntact() const;

  // To be changed by tests of bad input.
  GuardedTensor& q_start() { return q_start_; }
  GuardedTensor& kv_len() { return kv_len_; }
  GuardedTensor& table() { return table_; }

 private:
  GuardedTensor q_start_, kv_len_, table_;
  std::vector<int64_t> sequence_, position_;
};

using TestRows = std::vector<std::vector<double>>;

// A store [pages, 1, page_rows, width of `dim` channels in `dtype`].
GuardedTensor LatentStore(Device& device, DType dtype, int64_t pages, int64_t page_rows,
                          int64_t dim);
// Fills every row; FP8 stores with random codes and scales near 1.
void FillLatentStore(GuardedTensor& store, TestRng& rng);
// All rows of a store, page by page, as the layout defines their values.
TestRows LatentStoreRows(const GuardedTensor& store);

// What a store of `dtype` gives back of a row. REQUIRES: float values.
std::vector<double> AsStored(const std::vector<double>& row, DType dtype);

}  // namespace millrace

#endif  // KERNELS_LATENT_CACHE_TESTING_H_
