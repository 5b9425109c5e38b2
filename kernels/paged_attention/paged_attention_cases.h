// Shapes of the test and the benchmark.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_CASES_H_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_CASES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/paged_attention/paged_attention.h"

namespace millrace {

struct AttentionSequence {
  int32_t queries;
  int32_t keys;  // with the queries' own
};

struct PagedAttentionCase {
  const char* name;
  PagedAttentionShape shape;
  int32_t page_tokens;
  std::vector<AttentionSequence> sequences;
  DType cache = DType::kBF16;
  DType query = DType::kF32;
};

// SmolLM2-135M, Llama-3-8B and a multi-head model, as served.
inline std::vector<PagedAttentionCase> ServedCases() {
  const PagedAttentionShape smol{9, 3, 64}, llama{32, 8, 128}, multi_head{8, 8, 64};
  return {
      {"smollm2_decode_b1_kv512", smol, 16, {{1, 512}}},
      {"smollm2_decode_b1_kv8192", smol, 16, {{1, 8192}}},
      {"smollm2_decode_b16_kv1024", smol, 16, std::vector<AttentionSequence>(16, {1, 1024})},
      {"smollm2_prefill_512", smol, 16, {{512, 512}}},
      {"smollm2_prefill_512_f32", smol, 16, {{512, 512}}, DType::kF32},
      {"smollm2_prefill_2048", smol, 16, {{2048, 2048}}},
      {"llama8b_decode_b4_kv2048", llama, 64, std::vector<AttentionSequence>(4, {1, 2048})},
      {"llama8b_prefill_512", llama, 64, {{512, 512}}},
      {"llama8b_chunk_64_of_4096", llama, 64, {{64, 4096}}},
      {"mha_decode_b4_kv2048", multi_head, 16, std::vector<AttentionSequence>(4, {1, 2048})},
  };
}

// Llama-3-8B and 70B on a GPU, as the published tables measure: keys of a decode batch, with one
// or more new tokens a sequence, and a prompt.
inline std::vector<PagedAttentionCase> GpuServedCases() {
  const PagedAttentionShape llama8b{32, 8, 128}, llama70b{64, 8, 128};
  std::vector<PagedAttentionCase> cases;
  const auto decode = [&](const char* name, const PagedAttentionShape& shape, size_t sequences,
                          AttentionSequence each) {
    cases.push_back({name, shape, 64, std::vector<AttentionSequence>(sequences, each)});
  };
  decode("8b_b1_kv2k", llama8b, 1, {1, 2048});
  decode("8b_b1_kv8k", llama8b, 1, {1, 8192});
  decode("8b_b1_kv32k", llama8b, 1, {1, 32768});
  decode("8b_b8_kv8k", llama8b, 8, {1, 8192});
  decode("8b_b32_kv4k", llama8b, 32, {1, 4096});
  decode("8b_b32_kv32k", llama8b, 32, {1, 32768});
  decode("8b_b128_kv2k", llama8b, 128, {1, 2048});
  decode("8b_b8_kv8k_q4", llama8b, 8, {4, 8192});
  decode("8b_b32_kv4k_q4", llama8b, 32, {4, 4096});
  decode("8b_b32_kv4k_q8", llama8b, 32, {8, 4096});
  decode("70b_b32_kv4k", llama70b, 32, {1, 4096});
  decode("70b_b32_kv32k", llama70b, 32, {1, 32768});
  decode("70b_b32_kv4k_q4", llama70b, 32, {4, 4096});
  decode("8b_prefill_4x4k", llama8b, 4, {4096, 4096});
  decode("8b_prefill_16k", llama8b, 1, {16384, 16384});
  decode("8b_chunk_1k_of_16k", llama8b, 1, {1024, 16384});
  const auto on_codes = [&](const char* name, size_t sequences, AttentionSequence each) {
    decode(name, llama8b, sequences, each);
    cases.back().cache = DType::kU8;
  };
  on_codes("8b_fp8_b1_kv2k", 1, {1, 2048});
  on_codes("8b_fp8_b1_kv8k", 1, {1, 8192});
  on_codes("8b_fp8_b1_kv32k", 1, {1, 32768});
  on_codes("8b_fp8_b8_kv8k", 8, {1, 8192});
  on_codes("8b_fp8_b32_kv4k", 32, {1, 4096});
  on_codes("8b_fp8_b32_kv32k", 32, {1, 32768});
  on_codes("8b_fp8_b128_kv2k", 128, {1, 2048});
  on_codes("8b_fp8_b32_kv4k_q4", 32, {4, 4096});
  on_codes("8b_fp8_b32_kv4k_q16", 32, {16, 4096});
  on_codes("8b_fp8_prefill_4x4k", 4, {4096, 4096});
  on_codes("8b_fp8_prefill_16k", 1, {16384, 16384});
  on_codes("8b_fp8_chunk_1k_of_16k", 1, {1024, 16384});
  for (PagedAttentionCase& c : cases) c.query = DType::kBF16;
  return cases;
}

// Sizes that fit no tile, block, split or page.
inline std::vector<PagedAttentionCase> AwkwardCases() {
  return {
      {"one_token", {1, 1, 16}, 1, {{1, 1}}, DType::kF32},
      {"decode_groups_of_3", {9, 3, 64}, 16, {{1, 77}, {1, 1}, {1, 300}, {1, 64}}},
      {"decode_group_1", {3, 3, 48}, 7, {{1, 130}, {1, 65}}},
      {"decode_group_2", {4, 2, 40}, 256, {{1, 513}, {1, 255}}, DType::kF32},
      {"decode_group_5", {5, 1, 128}, 16, {{1, 1111}}},
      {"decode_group_8", {8, 1, 32}, 16, {{1, 700}, {1, 3}}},
      {"decode_group_64", {64, 1, 16}, 5, {{1, 400}, {2, 33}}},
      {"few_rows_of_several_queries", {2, 2, 32}, 16, {{3, 100}, {2, 64}, {4, 5}, {5, 1000}}},
      {"a_split_past_early_queries", {4, 2, 32}, 16, {{20, 261}}},
      {"a_split_past_early_queries_of_few_rows", {2, 2, 32}, 16, {{5, 258}}},
      {"decode_many_splits", {4, 2, 24}, 16, {{1, 5000}}},
      {"prefill", {6, 2, 64}, 16, {{200, 200}}},
      {"prefill_f32_cache", {9, 3, 64}, 16, {{65, 65}, {64, 64}, {63, 63}}, DType::kF32},
      {"prefill_bf16_queries", {4, 4, 80}, 16, {{70, 90}}, DType::kBF16, DType::kBF16},
      {"decode_bf16_queries", {4, 2, 64}, 16, {{1, 90}}, DType::kF32, DType::kBF16},
      {"chunks_deep_in", {8, 4, 72}, 13, {{7, 1000}, {33, 610}, {40, 133}, {1, 132}}},
      {"mixed_with_idle", {6, 3, 256}, 32, {{1, 260}, {0, 0}, {9, 9}, {0, 17}, {30, 95}}},
      {"head_dim_8", {2, 1, 8}, 3, {{50, 50}, {1, 9}}, DType::kF32},
  };
}

// bf16 throughout, as served on a GPU: what its kernels choose by (rows of a tile, head size, page
// size), and sizes around a chunk of 16 keys and a block of 64.
inline std::vector<PagedAttentionCase> BFloat16Cases() {
  std::vector<PagedAttentionCase> cases = {
      {"llama_decode", {32, 8, 128}, 64, {{1, 1}, {1, 15}, {1, 16}, {1, 17}, {1, 700}, {1, 2500}}},
      {"llama70b_decode", {64, 8, 128}, 16, {{1, 1023}, {1, 64}}},
      {"decode_alone", {8, 2, 128}, 64, {{1, 9000}}},
      {"smollm2_decode", {9, 3, 64}, 16, {{1, 3}, {0, 0}, {1, 333}}},
      {"multi_head_decode", {4, 4, 64}, 128, {{1, 1000}, {1, 129}}},
      {"pages_of_48", {8, 2, 96}, 48, {{1, 500}, {1, 47}, {1, 49}}},
      {"group_16", {32, 2, 128}, 32, {{1, 900}, {1, 31}}},
      {"group_12_of_96", {12, 1, 96}, 16, {{1, 777}}},
      {"wide", {8, 1, 256}, 16, {{1, 1200}, {1, 2}}},
      {"wide_group_16", {16, 1, 256}, 64, {{1, 600}}},
      {"two_queries", {8, 4, 64}, 16, {{2, 2}, {2, 500}, {1, 80}, {2, 17}}},
      {"two_queries_of_128", {8, 2, 128}, 16, {{2, 1500}, {1, 77}, {2, 2}, {2, 4097}}},
      {"four_queries", {8, 2, 128}, 64, {{4, 4}, {4, 1500}, {3, 64}, {4, 67}}},
      {"four_queries_of_8_heads", {16, 2, 128}, 64, {{4, 2100}, {4, 65}, {1, 40}}},
      {"sixteen_queries", {8, 1, 128}, 16, {{16, 16}, {16, 900}, {5, 63}}},
      {"sixteen_queries_of_one_head", {2, 2, 96}, 32, {{16, 300}, {9, 20}}},
      {"wide_queries", {4, 1, 256}, 32, {{9, 700}}},
      {"odd_pages", {4, 2, 128}, 13, {{1, 300}, {1, 14}}},
      {"odd_head", {4, 2, 72}, 16, {{1, 300}, {70, 90}}},
      {"prefill", {8, 2, 128}, 64, {{130, 130}, {17, 1000}}},
      {"prefill_group_64", {64, 1, 64}, 16, {{40, 70}}},
      {"mixed", {6, 3, 256}, 32, {{1, 260}, {0, 0}, {9, 9}, {0, 17}, {30, 95}}},
      {"alone_over_all_heads", {32, 8, 128}, 64, {{1, 2100}}},
      {"alone_of_one_head", {3, 1, 128}, 48, {{1, 20000}}},
      {"alone_and_short", {32, 8, 128}, 64, {{1, 3}}},
      {"few_sequences_of_96", {8, 4, 96}, 16, {{1, 333}, {1, 5}}},
      {"many_pages", {4, 1, 128}, 16, {{1, 10000}, {1, 17}}},
      {"thirty_two_rows_of_64", {16, 2, 64}, 32, {{4, 500}, {2, 33}, {3, 3}}},
      {"twenty_four_rows_of_96", {8, 1, 96}, 16, {{3, 700}}},
      {"mixed_llama", {8, 2, 128}, 16, {{1, 1000}, {200, 450}, {3, 77}, {1, 5}, {64, 64}}},
  };
  for (PagedAttentionCase& c : cases) c.query = DType::kBF16;
  return cases;
}

// The same on a cache of codes.
inline std::vector<PagedAttentionCase> OnFp8(std::vector<PagedAttentionCase> cases) {
  for (PagedAttentionCase& c : cases) c.cache = DType::kU8;
  return cases;
}

// bf16 queries on codes: the shapes above, and chunks for each head size of the prefill kernel.
inline std::vector<PagedAttentionCase> Fp8Cases() {
  std::vector<PagedAttentionCase> cases = BFloat16Cases();
  cases.push_back(
      {"llama_chunks", {32, 8, 128}, 64, {{100, 1500}, {300, 300}, {40, 64}, {17, 17}}});
  cases.push_back({"prefill_of_64", {9, 3, 64}, 16, {{400, 401}, {30, 800}}});
  cases.push_back({"prefill_of_96", {6, 6, 96}, 32, {{500, 620}}});
  cases.push_back({"prefill_of_256", {4, 2, 256}, 128, {{260, 300}, {33, 999}}});
  for (PagedAttentionCase& c : cases) c.query = DType::kBF16;
  return OnFp8(std::move(cases));
}

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_CASES_H_
