// Shapes of the test and the benchmark.
#ifndef KERNELS_ROPE_ROPE_CASES_H_
#define KERNELS_ROPE_ROPE_CASES_H_

#include <cstdint>

#include "kernels/core/dtype.h"

namespace millrace {

struct RopeCase {
  const char* name;
  int64_t tokens, heads, dim;
  int64_t row_padding = 0;  // elements after each head
  DType dtype = DType::kF32;
};

inline constexpr RopeCase kRopeServed[] = {
    {"smollm2_decode", 1, 12, 64},
    {"smollm2_prefill", 512, 12, 64},
    {"llama8b_decode", 16, 40, 128},
    {"llama8b_prefill", 96, 40, 128},
    {"llama8b_prefill_bf16", 96, 40, 128, 0, DType::kBF16},
};

inline constexpr RopeCase kRopeServedOnGpu[] = {
    {"llama8b_decode_64", 64, 40, 128, 0, DType::kBF16},
    {"llama8b_512", 512, 40, 128, 0, DType::kBF16},
    {"llama8b_8192", 8192, 40, 128, 0, DType::kBF16},
    {"llama70b_8192", 8192, 72, 128, 0, DType::kBF16},
};

inline constexpr RopeCase kRopeAwkward[] = {
    {"no_tokens", 0, 3, 64},
    {"no_heads", 3, 0, 64},
    {"one_pair", 3, 2, 2},
    {"half_of_5", 7, 3, 10, 3},
    {"half_of_20", 5, 1, 40, 1},
    {"half_of_40", 33, 5, 80, 7, DType::kBF16},
    {"widest", 3, 2, 512},
    {"several_threads", 300, 12, 64, 5},
    {"bf16_96", 5, 7, 96, 8, DType::kBF16},
    {"bf16_256", 9, 50, 256, 0, DType::kBF16},
    {"bf16_widest", 2, 3, 512, 0, DType::kBF16},
};

}  // namespace millrace

#endif  // KERNELS_ROPE_ROPE_CASES_H_
