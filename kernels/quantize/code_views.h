// CodeArgs of the tensors of a call; for CUDA rows.
#ifndef KERNELS_QUANTIZE_CODE_VIEWS_H_
#define KERNELS_QUANTIZE_CODE_VIEWS_H_

#include <cstdint>

#include "kernels/core/tensor_view.h"
#include "kernels/quantize/code_args.h"
#include "kernels/quantize/quantize.h"

namespace millrace {

// Whether every row starts on `bytes`.
inline bool RowsStartOn(const TensorView& t, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(bytes) == 0 &&
         (t.dim(0) <= 1 || t.stride(0) * DTypeBytes(t.dtype) % bytes == 0);
}

// Whether codes can be stored eight at a time.
inline bool CodesTakeVectors(const TensorView& codes) {
  return codes.dim(1) % 8 == 0 && RowsStartOn(codes, 8);
}

// REQUIRES: CheckQuantize() found nothing; at most 2^31 - 1 codes a row.
inline CodeArgs CodeArgsOf(const QuantizeArgs& args) {
  return {.codes = args.codes.as<uint8_t>(),
          .scale = args.scale.as<float>(),
          .codes_stride = args.codes.stride(0),
          .scale_stride = args.scale.stride(0),
          .size = static_cast<int32_t>(args.codes.dim(1)),
          .rounding = static_cast<CodeScale>(args.rounding),
          .e5m2 = args.format == QuantizeFormat::kE5M2};
}
static_assert(static_cast<int>(CodeScale::kPowerOfTwo) ==
                  static_cast<int>(QuantizeScale::kPowerOfTwo) &&
              static_cast<int>(CodeScale::kGiven) == static_cast<int>(QuantizeScale::kGiven));

// REQUIRES: groups, tokens, or a given scale.
inline RowUnit RowUnitOf(QuantizeUnit unit) {
  if (unit == QuantizeUnit::kTensor) return RowUnit::kGiven;
  return unit == QuantizeUnit::kToken ? RowUnit::kToken : RowUnit::kGroup;
}

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_CODE_VIEWS_H_
