// Rows of the latent cache, as the ops that write and read them see a store: a tensor
// [pages, 1, rows of a page, width], any stride between pages, rows of a page without gaps.
//
// f32, bf16: a row is its channels. FP8: u8 and kFp8LatentBytes wide, for rows of kFp8LatentDim
// channels, the last kFp8LatentRopeDim of which are rotated. A page then holds, in this order,
//   of each row   448 E4M3 codes and 64 bf16                       576 bytes
//   of each row   7 scales E8M0, of 64 codes each, and a zero        8 bytes
// value = code * 2^(scale - 127), the scale being 2^ceil(log2(amax / 448)), at least 2^-22, and NaN
// (255) where a channel of the group is not finite; no code is NaN. The layout is FlashMLA's, but
// for its padding of a page, which the stride between pages can hold.
#ifndef KERNELS_LATENT_CACHE_LATENT_ROW_H_
#define KERNELS_LATENT_CACHE_LATENT_ROW_H_

#include <cstdint>
#include <string_view>

#include "kernels/core/shape_checker.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

inline constexpr int64_t kFp8LatentDim = 512;
inline constexpr int64_t kFp8LatentRopeDim = 64;
inline constexpr int64_t kFp8LatentBytes = 584;

// Where the parts of a page of FP8 rows lie.
inline constexpr int64_t kFp8LatentCodes = kFp8LatentDim - kFp8LatentRopeDim;
inline constexpr int64_t kFp8LatentGroup = 64;  // codes of a scale
inline constexpr int64_t kFp8LatentDataBytes = kFp8LatentCodes + 2 * kFp8LatentRopeDim;
inline constexpr int64_t kFp8LatentScaleBytes = 8;
static_assert(kFp8LatentDataBytes + kFp8LatentScaleBytes == kFp8LatentBytes);

// Elements of a store's row of `dim` channels.
constexpr int64_t LatentRowWidth(DType dtype, int64_t dim) {
  return dtype == DType::kU8 ? kFp8LatentBytes : dim;
}

// Writes row `row` of page `page` from `dim` channels, rounding to nearest even. Host memory; any
// thread. REQUIRES: a store that passed CheckLatentStore, both indices in it.
void WriteLatentRow(const float* from, int64_t dim, const TensorView& store, int64_t page,
                    int64_t row);
void WriteLatentRow(const BFloat16* from, int64_t dim, const TensorView& store, int64_t page,
                    int64_t row);

// Checks a store of rows of `dim` channels, f32, bf16 or FP8.
void CheckLatentStore(ShapeChecker& checker, std::string_view name, const TensorView& store,
                      int64_t dim);

}  // namespace millrace

#endif  // KERNELS_LATENT_CACHE_LATENT_ROW_H_
