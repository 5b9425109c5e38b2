// How the tests of ops that end in a quantisation quantise.
#ifndef KERNELS_QUANTIZE_TESTING_H_
#define KERNELS_QUANTIZE_TESTING_H_

#include <cstdint>
#include <vector>

#include "kernels/quantize/quantize.h"
#include "kernels/testing/guarded_tensor.h"

namespace millrace {

struct QuantizeForm {
  QuantizeUnit unit;
  QuantizeScale rounding;
  QuantizeFormat format;
};

// Each unit, scale and format that rows of a fused op may have.
inline constexpr QuantizeForm kQuantizeForms[] = {
    {QuantizeUnit::kGroup, QuantizeScale::kF32, QuantizeFormat::kE4M3},
    {QuantizeUnit::kGroup, QuantizeScale::kPowerOfTwo, QuantizeFormat::kE5M2},
    {QuantizeUnit::kToken, QuantizeScale::kF32, QuantizeFormat::kE4M3},
    {QuantizeUnit::kToken, QuantizeScale::kPowerOfTwo, QuantizeFormat::kE5M2},
    {QuantizeUnit::kTensor, QuantizeScale::kGiven, QuantizeFormat::kE4M3},
};

// Scales of [tokens, size] as `form` has them, a given one set; rows of groups' scales padded.
inline GuardedTensor QuantizeScales(Device& device, const QuantizeForm& form, int64_t tokens,
                                    int64_t size, int64_t padding) {
  std::vector<int64_t> shape = {1};
  if (form.unit == QuantizeUnit::kToken) shape = {tokens};
  if (form.unit == QuantizeUnit::kGroup) shape = {(size + 127) / 128, tokens};
  GuardedTensor scale(device, DType::kF32, shape, form.unit == QuantizeUnit::kGroup ? padding : 0);
  if (form.rounding == QuantizeScale::kGiven) scale.SetAll(0.0123);
  return scale;
}

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_TESTING_H_
