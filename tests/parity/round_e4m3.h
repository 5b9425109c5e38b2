// What storing as FP8 does to numbers, for formulas in double precision.
#ifndef TESTS_PARITY_ROUND_E4M3_H_
#define TESTS_PARITY_ROUND_E4M3_H_

#include <span>

#include "kernels/lowp/small_float.h"

namespace millrace {

// Each to the nearest multiple of `scale` that E4M3 has.
inline void RoundE4M3(std::span<double> x, double scale) {
  for (double& value : x) value = double{kE4M3Values[EncodeE4M3(value / scale)]} * scale;
}

}  // namespace millrace

#endif  // TESTS_PARITY_ROUND_E4M3_H_
