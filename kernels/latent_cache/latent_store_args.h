// A store of latent rows as kernels take it: for the host and for nvcc.
#ifndef KERNELS_LATENT_CACHE_LATENT_STORE_ARGS_H_
#define KERNELS_LATENT_CACHE_LATENT_STORE_ARGS_H_

#include <cstdint>
#include <type_traits>

namespace millrace {

enum class LatentRowType : uint8_t { kF32, kBf16, kFp8 };

// As latent_row.h has it.
struct LatentStoreArgs {
  void* data = nullptr;
  int64_t page_stride = 0;  // in elements
  int32_t pages = 0;
  int32_t page_rows = 0;
  int32_t dim = 0;
  LatentRowType type = LatentRowType::kF32;
  bool aligned = false;  // every row starts on 16 bytes, those of FP8 on 8
};
static_assert(std::is_trivially_copyable_v<LatentStoreArgs>);

}  // namespace millrace

#endif  // KERNELS_LATENT_CACHE_LATENT_STORE_ARGS_H_
