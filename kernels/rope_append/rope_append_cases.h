// Shapes of the test and the benchmark.
#ifndef KERNELS_ROPE_APPEND_ROPE_APPEND_CASES_H_
#define KERNELS_ROPE_APPEND_ROPE_APPEND_CASES_H_

#include <cstdint>

#include "kernels/core/dtype.h"

namespace millrace {

struct RopeAppendCase {
  const char* name;
  int64_t tokens, q_heads, kv_heads, dim, pages, page_tokens;
  DType from = DType::kF32;
  DType cache = DType::kBF16;
  int64_t padding = 0;  // elements after each row of queries, keys, values and cache
};

inline constexpr RopeAppendCase kRopeAppendServed[] = {
    {"smollm2_decode", 1, 9, 3, 64, 40, 16},
    {"smollm2_prefill", 512, 9, 3, 64, 40, 16},
    {"llama8b_decode", 1, 32, 8, 128, 10, 64},
    {"llama8b_decode_16", 16, 32, 8, 128, 10, 64},
    {"llama8b_decode_64", 64, 32, 8, 128, 10, 64},
    {"llama8b_prefill", 512, 32, 8, 128, 10, 64},
    {"llama8b_decode_16_fp8", 16, 32, 8, 128, 10, 64, DType::kBF16, DType::kU8},
    {"llama8b_prefill_fp8", 512, 32, 8, 128, 10, 64, DType::kBF16, DType::kU8},
};

inline constexpr RopeAppendCase kRopeAppendServedOnGpu[] = {
    {"llama8b_2048", 2048, 32, 8, 128, 32, 64},
    {"llama8b_8192", 8192, 32, 8, 128, 128, 64},
    {"llama8b_8192_fp8", 8192, 32, 8, 128, 128, 64, DType::kBF16, DType::kU8},
    {"llama70b_8192", 8192, 64, 8, 128, 128, 64},
};

inline constexpr RopeAppendCase kRopeAppendAwkward[] = {
    {"no_tokens", 0, 3, 1, 16, 2, 4},
    {"no_queries", 5, 0, 2, 16, 2, 4},
    {"no_keys", 5, 2, 0, 16, 2, 4},
    {"one_pair", 1, 1, 1, 2, 1, 1},
    {"f32_to_f32", 9, 5, 3, 20, 4, 5, DType::kF32, DType::kF32, 3},
    {"f32_to_bf16", 17, 3, 2, 10, 9, 3, DType::kF32, DType::kBF16, 1},
    {"bf16_to_bf16", 11, 7, 5, 34, 3, 7, DType::kBF16, DType::kBF16, 2},
    {"bf16_to_f32", 6, 2, 1, 24, 2, 4, DType::kBF16, DType::kF32, 5},
    {"words", 33, 32, 8, 128, 5, 16, DType::kBF16, DType::kBF16, 8},
    {"words_of_64", 5, 9, 3, 64, 3, 16, DType::kBF16, DType::kBF16},
    {"words_of_80", 5, 7, 3, 80, 3, 16, DType::kBF16, DType::kBF16, 16},
    {"words_of_96", 7, 31, 7, 96, 3, 16, DType::kBF16, DType::kBF16},
    {"words_of_256", 7, 16, 16, 256, 3, 16, DType::kBF16, DType::kBF16},
    {"widest", 3, 2, 1, 512, 3, 2, DType::kBF16, DType::kBF16},
    {"several_threads", 400, 4, 2, 64, 5, 128},
    {"f32_to_fp8", 17, 3, 2, 10, 9, 3, DType::kF32, DType::kU8, 1},
    {"bf16_to_fp8", 11, 7, 5, 34, 3, 7, DType::kBF16, DType::kU8, 2},
    {"words_to_fp8", 33, 32, 8, 128, 5, 16, DType::kBF16, DType::kU8, 8},
    {"words_of_80_to_fp8", 5, 7, 3, 80, 3, 16, DType::kBF16, DType::kU8, 16},
    {"widest_to_fp8", 3, 2, 1, 512, 3, 2, DType::kBF16, DType::kU8},
    {"fp8_on_several_threads", 400, 4, 2, 64, 5, 128, DType::kF32, DType::kU8},
};

}  // namespace millrace

#endif  // KERNELS_ROPE_APPEND_ROPE_APPEND_CASES_H_
