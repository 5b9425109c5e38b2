// The rotation frequencies of a model, as Hugging Face transformers computes them (in float32, in
// the same order of operations).
#ifndef KERNELS_ROPE_ROPE_FREQUENCIES_H_
#define KERNELS_ROPE_ROPE_FREQUENCIES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace {

enum class RopeType : uint8_t {
  kDefault,
  kLinear,  // every frequency divided by `factor`
  kLlama3,  // low frequencies divided by `factor`, high ones kept, a ramp between
  // The same idea with the ramp straight in the pair's index; DeepSeek-V4's variant, in which
  // nothing but the frequencies changes (no attention factor).
  kYarn,
};

struct RopeFrequencyParams {
  RopeType type = RopeType::kDefault;
  int32_t dim = 0;                       // rotated elements of a head; even
  double theta = 10000.0;                // base of the geometric series
  double factor = 1.0;                   // all but kDefault
  double low_freq_factor = 1;            // kLlama3, and the one below
  double high_freq_factor = 4;           // above low_freq_factor
  int32_t original_max_position = 8192;  // kLlama3 and kYarn
  // kYarn: a pair that turns beta_fast times or more over original_max_position keeps its
  // frequency, one that turns beta_slow times or less has it divided.
  double beta_fast = 32;  // above beta_slow
  double beta_slow = 1;
};

// dim / 2 frequencies in radians per position. InvalidArgument naming the parameter that is out of
// its range. Any thread.
absl::StatusOr<std::vector<float>> RopeFrequencies(const RopeFrequencyParams& params);

}  // namespace millrace

#endif  // KERNELS_ROPE_ROPE_FREQUENCIES_H_
