// One row of logits on the CPU: passes over it, the likeliest tokens, the draw.
#ifndef KERNELS_SAMPLE_SAMPLE_CPU_ROW_H_
#define KERNELS_SAMPLE_SAMPLE_CPU_ROW_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/sample_cpu_passes.h"

namespace millrace {

struct SampleCandidate {
  float logit = 0;
  int32_t id = 0;
};

struct SampleMass {
  float logit = 0;
  float weight = 0;
};

// Scratch for one row of V logits in ceil(V / kSampleBlock) blocks.
struct SampleScratch {
  float* maxima;                // [blocks]
  float* sums;                  // [blocks]
  float* logits;                // [V] a row changed by bias and penalties
  float* weights;               // [V]
  SampleMass* order;            // [V] for selections
  SampleCandidate* candidates;  // [V]
};

// Bytes of it, and the arrays laid out in so much memory.
int64_t SampleScratchBytes(int64_t vocabulary);
SampleScratch CutSampleScratch(void* memory, int64_t vocabulary);

// Not thread-safe; with a pool its passes over the vocabulary use all of the pool's threads.
class SampleRowView final {
 public:
  // Borrows all. `pool` null: everything on this thread.
  SampleRowView(const SamplePasses& passes, ThreadPool* pool, const SampleScratch& scratch,
                int64_t vocabulary)
      : passes_(passes), pool_(pool), scratch_(scratch), size_(vocabulary) {}

  // Makes `logits` the row to work on. False when one of them is NaN or infinite.
  bool Read(const float* logits);
  // Makes the row a changed copy of itself. Infinities are fine from here on.
  void Change(const SampleRow& row);

  float maximum() const { return maximum_; }
  // log of the sum of e^logit.
  double LogSum();
  // The `count` largest logits, largest first, equal ones by id; fewer when the row has fewer.
  absl::Span<const SampleCandidate> Top(int64_t count);
  // The lowest id of the largest logit.
  int32_t Greedy() const;
  // One draw by the row's temperature and filters. REQUIRES: maximum() is finite.
  int32_t Draw(const SampleRow& row);
  // How many logits are above `bound`.
  int64_t CountAbove(float bound) const;

 private:
  bool Maxima();
  double Sums(float factor);
  // Candidates: all logits of at least `bound`, in the order of ids.
  absl::Span<SampleCandidate> Gather(float bound);
  // The k-th largest logit.
  float KthLargest(int64_t k);
  // The logit at which the candidates, largest first, reach `mass` of `weights`.
  float NucleusBound(absl::Span<const SampleCandidate> candidates, const float* weights,
                     double mass);
  int32_t DrawFromAll(float factor, double uniform);
  int32_t DrawFiltered(const SampleRow& row, float factor, double uniform);

  const SamplePasses& passes_;
  ThreadPool* const pool_;
  const SampleScratch scratch_;
  const int64_t size_;
  const float* logits_ = nullptr;
  float maximum_ = 0;
};

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_CPU_ROW_H_
