#include "kernels/latent_cache/latent_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/lowp/small_float.h"

namespace millrace {
namespace {

constexpr int kLargestE4M3 = 448;
// Of a group of zeros: what the reference's floor of 1e-4 under the largest magnitude comes to.
constexpr double kSmallestScale = 0x1p-22;
constexpr uint8_t kNanScale = 0xff;

float Widen(float x) { return x; }
float Widen(BFloat16 x) { return ToFloat(x); }
BFloat16 Narrow(float x) { return ToBFloat16(x); }
BFloat16 Narrow(BFloat16 x) { return x; }

// A group's codes, and its scale as the result.
template <typename From>
uint8_t WriteGroup(const From* from, uint8_t* codes) {
  float amax = 0;
  bool is_finite = true;
  for (int64_t i = 0; i < kFp8LatentGroup; ++i) {
    const float magnitude = std::abs(Widen(from[i]));
    is_finite = is_finite && magnitude <= std::numeric_limits<float>::max();
    amax = std::max(amax, magnitude);
  }
  if (!is_finite) {
    std::fill_n(codes, kFp8LatentGroup, uint8_t{0});
    return kNanScale;
  }
  const uint8_t scale = EncodeE8M0RoundUp(std::max(double{amax} / kLargestE4M3, kSmallestScale));
  const double inverse = 1.0 / double{kE8M0Values[scale]};
  for (int64_t i = 0; i < kFp8LatentGroup; ++i) codes[i] = EncodeE4M3(Widen(from[i]) * inverse);
  return scale;
}

template <typename From>
void WriteFp8(const From* from, uint8_t* page, int64_t page_rows, int64_t row) {
  uint8_t* codes = page + row * kFp8LatentDataBytes;
  uint8_t* scales = page + page_rows * kFp8LatentDataBytes + row * kFp8LatentScaleBytes;
  for (int64_t g = 0; g < kFp8LatentCodes / kFp8LatentGroup; ++g) {
    scales[g] = WriteGroup(from + g * kFp8LatentGroup, codes + g * kFp8LatentGroup);
  }
  scales[kFp8LatentScaleBytes - 1] = 0;
  BFloat16 rotated[kFp8LatentRopeDim];
  std::transform(from + kFp8LatentCodes, from + kFp8LatentDim, rotated,
                 [](From x) { return Narrow(x); });
  std::memcpy(codes + kFp8LatentCodes, rotated, sizeof(rotated));
}

template <typename From>
void WriteRow(const From* from, int64_t dim, const TensorView& store, int64_t page, int64_t row) {
  if (store.dtype == DType::kU8) {
    WriteFp8(from, store.as<uint8_t>() + page * store.stride(0), store.dim(2), row);
    return;
  }
  const int64_t offset = page * store.stride(0) + row * store.stride(2);
  if (store.dtype == DType::kF32) {
    std::transform(from, from + dim, store.as<float>() + offset, [](From x) { return Widen(x); });
  } else {
    std::transform(from, from + dim, store.as<BFloat16>() + offset,
                   [](From x) { return Narrow(x); });
  }
}

}  // namespace

void WriteLatentRow(const float* from, int64_t dim, const TensorView& store, int64_t page,
                    int64_t row) {
  WriteRow(from, dim, store, page, row);
}

void WriteLatentRow(const BFloat16* from, int64_t dim, const TensorView& store, int64_t page,
                    int64_t row) {
  WriteRow(from, dim, store, page, row);
}

void CheckLatentStore(ShapeChecker& checker, std::string_view name, const TensorView& store,
                      int64_t dim) {
  int64_t pages = kUnbound, heads = 1, rows = kUnbound;
  int64_t width = LatentRowWidth(store.dtype, dim);
  checker.Bind(name, store, {&pages, &heads, &rows, &width},
               {DType::kF32, DType::kBF16, DType::kU8});
  const std::string prefix = std::string(name) + ": ";
  checker
      .Require(store.dtype != DType::kU8 || dim == kFp8LatentDim,
               prefix + "FP8 rows have 512 channels")
      .Require(store.stride(2) == store.dim(3), prefix + "rows of a page must have no gaps");
}

}  // namespace millrace
