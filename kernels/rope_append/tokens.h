// What the rows of RopeAppend's device table work on: the arguments as pointers and strides, for
// the host and for nvcc. Strides in elements.
#ifndef KERNELS_ROPE_APPEND_TOKENS_H_
#define KERNELS_ROPE_APPEND_TOKENS_H_

#include <cstdint>
#include <type_traits>

namespace millrace {

// [T, N, D]
struct TokenHeads {
  void* data = nullptr;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
};

// [pages, N, page_tokens, D]
struct CachePages {
  void* data = nullptr;
  const float* scale = nullptr;  // [N], where the cache holds codes
  int64_t page_stride = 0;
  int64_t head_stride = 0;
  int64_t slot_stride = 0;  // from a token of a page to the next
};

struct RopeAppendTokens {
  TokenHeads q;
  TokenHeads k;
  TokenHeads v;
  CachePages k_cache;
  CachePages v_cache;
  const int32_t* positions = nullptr;
  const float* inv_freq = nullptr;
  const int64_t* slots = nullptr;
  int64_t slot_limit = 0;
  int32_t tokens = 0;
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t dim = 0;
  int32_t page_tokens = 0;
};
static_assert(std::is_trivially_copyable_v<RopeAppendTokens>);

}  // namespace millrace

#endif  // KERNELS_ROPE_APPEND_TOKENS_H_
