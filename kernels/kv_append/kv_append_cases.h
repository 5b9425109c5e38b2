// Shapes of the test and the benchmark.
#ifndef KERNELS_KV_APPEND_KV_APPEND_CASES_H_
#define KERNELS_KV_APPEND_KV_APPEND_CASES_H_

#include <cstdint>

#include "kernels/core/dtype.h"

namespace millrace {

struct KvAppendCase {
  const char* name;
  int64_t tokens, heads, dim, pages, page_tokens;
  DType from = DType::kF32;
  DType cache = DType::kBF16;
  int64_t padding = 0;  // elements after each row of keys, values and cache
};

inline constexpr KvAppendCase kKvAppendServed[] = {
    {"smollm2_decode", 1, 3, 64, 40, 16},
    {"smollm2_prefill", 512, 3, 64, 40, 16},
    {"llama8b_decode", 16, 8, 128, 10, 64},
    {"llama8b_prefill", 512, 8, 128, 10, 64},
    {"llama8b_prefill_bf16", 512, 8, 128, 10, 64, DType::kBF16},
    {"llama8b_decode_fp8", 16, 8, 128, 10, 64, DType::kBF16, DType::kU8},
    {"llama8b_prefill_fp8", 512, 8, 128, 10, 64, DType::kBF16, DType::kU8},
};

inline constexpr KvAppendCase kKvAppendServedOnGpu[] = {
    {"llama8b_decode_64", 64, 8, 128, 10, 64},
    {"llama8b_8192", 8192, 8, 128, 128, 64},
    {"llama8b_8192_fp8", 8192, 8, 128, 128, 64, DType::kBF16, DType::kU8},
};

inline constexpr KvAppendCase kKvAppendAwkward[] = {
    {"no_tokens", 0, 3, 16, 2, 4},
    {"one_element", 1, 1, 1, 1, 1},
    {"f32_to_f32", 9, 3, 20, 4, 5, DType::kF32, DType::kF32, 3},
    {"f32_to_bf16", 17, 2, 7, 9, 3, DType::kF32, DType::kBF16, 1},
    {"bf16_to_bf16", 11, 5, 33, 3, 7, DType::kBF16, DType::kBF16, 2},
    {"bf16_to_f32", 6, 1, 24, 2, 4, DType::kBF16, DType::kF32, 5},
    {"padded_words", 21, 3, 96, 2, 16, DType::kBF16, DType::kBF16, 8},
    {"long_rows", 5, 2, 512, 3, 2, DType::kBF16, DType::kBF16},
    {"several_threads", 400, 4, 64, 5, 128},
    {"f32_to_fp8", 17, 3, 7, 9, 3, DType::kF32, DType::kU8, 1},
    {"bf16_to_fp8", 11, 5, 33, 3, 7, DType::kBF16, DType::kU8, 2},
    {"words_to_fp8", 21, 3, 96, 2, 16, DType::kBF16, DType::kU8, 8},
    {"fp8_on_several_threads", 400, 4, 64, 5, 128, DType::kF32, DType::kU8},
};

}  // namespace millrace

#endif  // KERNELS_KV_APPEND_KV_APPEND_CASES_H_
