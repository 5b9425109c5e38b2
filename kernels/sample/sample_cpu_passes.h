// Passes over a row of logits, in blocks of a fixed size, so that a row's numbers do not depend on
// how its blocks are dealt to threads.
#ifndef KERNELS_SAMPLE_SAMPLE_CPU_PASSES_H_
#define KERNELS_SAMPLE_SAMPLE_CPU_PASSES_H_

#include <cstdint>

namespace millrace {

// Small enough that looking into one block for a token costs nothing, large enough that the maxima
// of a vocabulary's blocks are few.
inline constexpr int64_t kSampleBlock = 64;

constexpr int64_t SampleBlocks(int64_t vocabulary) {
  return (vocabulary + kSampleBlock - 1) / kSampleBlock;
}

// Blocks [begin, end) of a row of `size` logits; the last block of the row may be short.
struct SampleRange {
  const float* logits = nullptr;
  int64_t size = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

struct SamplePasses {
  // maxima[i] <- the largest logit of block i. False when one of them is NaN or infinite.
  bool (*maxima)(const SampleRange&, float* maxima);
  // sums[i] <- the sum over block i of e^((logit - base) * factor), factor > 0 and base the
  // largest.
  void (*sums)(const SampleRange&, float base, float factor, float* sums);
  // x[i] <- e^((x[i] - base) * factor) for n elements.
  void (*exponentials)(float* x, int64_t n, float base, float factor);
  // How many logits are above `bound`.
  int64_t (*count_above)(const SampleRange&, float bound);
};

extern const SamplePasses kSampleScalar;
extern const SamplePasses kSampleAvx2;
extern const SamplePasses kSampleAvx512;

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_CPU_PASSES_H_
