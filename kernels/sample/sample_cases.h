// Shapes of the tests and the benchmark.
#ifndef KERNELS_SAMPLE_SAMPLE_CASES_H_
#define KERNELS_SAMPLE_SAMPLE_CASES_H_

#include <cstdint>

#include "kernels/sample/sample.h"

namespace millrace {

struct SampleCase {
  const char* name;
  int64_t rows, vocabulary;
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  int32_t num_top_logprobs = -1;

  SampleRow Row() const {
    SampleRow row;
    row.temperature = temperature;
    row.top_k = top_k;
    row.top_p = top_p;
    row.min_p = min_p;
    row.num_top_logprobs = num_top_logprobs;
    return row;
  }
};

// SmolLM2's and Llama-3's vocabularies.
inline constexpr SampleCase kSampleServed[] = {
    {"smollm2_greedy", 1, 49152},
    {"smollm2_greedy_b16", 16, 49152},
    {"smollm2_plain", 1, 49152, 1.0f},
    {"smollm2_top_k", 1, 49152, 0.8f, 50},
    {"smollm2_top_p", 1, 49152, 0.8f, 0, 0.95f},
    {"smollm2_min_p", 1, 49152, 0.8f, 0, 1, 0.05f},
    {"smollm2_all_filters_logprobs", 1, 49152, 0.8f, 50, 0.95f, 0.02f, 5},
    {"llama3_greedy", 1, 128256},
    {"llama3_top_k_top_p_b16", 16, 128256, 0.8f, 50, 0.95f},
    {"llama3_top_p_flat", 1, 128256, 5.0f, 0, 0.95f},
    {"llama3_greedy_b8", 8, 128256},
    {"llama3_top_k_top_p_b8", 8, 128256, 0.8f, 50, 0.95f},
    {"llama3_greedy_b64", 64, 128256},
    {"llama3_plain_b64", 64, 128256, 1.0f},
    {"llama3_min_p_b64", 64, 128256, 0.8f, 0, 1, 0.05f},
    {"llama3_top_k_b64", 64, 128256, 0.8f, 50},
    {"llama3_top_k_top_p_b64", 64, 128256, 0.8f, 50, 0.95f},
    {"llama3_top_p_b64", 64, 128256, 0.5f, 0, 0.95f},
    {"llama3_top_p_flat_b64", 64, 128256, 5.0f, 0, 0.95f},
    {"llama3_all_filters_logprobs_b64", 64, 128256, 0.8f, 50, 0.95f, 0.02f, 5},
};

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_CASES_H_
