#include "kernels/stored_matrix/stored_matrix_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/core/dtype.h"
#include "kernels/cpu/isa_choice.h"
#include "kernels/lowp/small_float.h"

namespace millrace {
namespace {

constexpr int64_t kRoundedTogether = 128;
constexpr float kSmallestAmax = 1e-4f;

void Widen(const TensorView& x, int64_t token, float* to) {
  const int64_t cols = x.dim(1);
  if (x.dtype == DType::kF32) {
    std::memcpy(to, x.as<float>() + token * x.stride(0), static_cast<size_t>(cols) * sizeof(float));
    return;
  }
  const BFloat16* from = x.as<BFloat16>() + token * x.stride(0);
  std::transform(from, from + cols, to, ToFloat);
}

}  // namespace

void RoundToFp8(float* x, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kRoundedTogether) {
    const int64_t end = std::min(begin + kRoundedTogether, count);
    float amax = kSmallestAmax;
    for (int64_t i = begin; i < end; ++i) amax = std::max(amax, std::fabs(x[i]));
    const float scale = kE8M0Values[EncodeE8M0RoundUp(static_cast<double>(amax) / kE4M3.max)];
    for (int64_t i = begin; i < end; ++i) {
      const double quotient = static_cast<double>(x[i]) / static_cast<double>(scale);
      x[i] = kE4M3Values[EncodeE4M3(quotient)] * scale;
    }
  }
}

void PrepareStoredTokens(const TensorView& x, int64_t begin, int64_t end,
                         ActivationRounding rounding, float* prepared) {
  const int64_t cols = x.dim(1);
  const int64_t padded = StoredPaddedCols(cols);
  for (int64_t token = begin; token < end; ++token, prepared += padded) {
    Widen(x, token, prepared);
    std::fill(prepared + cols, prepared + padded, 0.0f);
    if (rounding == ActivationRounding::kFp8Per128) RoundToFp8(prepared, cols);
  }
}

StoredTileFn StoredTileFor(CpuIsa isa) {
  return ForIsa<StoredTileFn>(isa, kStoredTileScalar, kStoredTileAvx2, kStoredTileAvx512);
}

}  // namespace millrace
