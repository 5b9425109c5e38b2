// For tests of FP8 products: operands x [T, K] and w [N, K] of E4M3 codes with their scales, and
// the product by its definition.
#ifndef KERNELS_TESTING_FP8_OPERANDS_H_
#define KERNELS_TESTING_FP8_OPERANDS_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/testing/fp8_sum.h"
#include "kernels/testing/guarded_tensor.h"

namespace millrace {

// What the scales are: of 1 x 128 of x and 128 x 128 of w, or of what is named, x's first.
enum class Fp8Units : uint8_t { kBlocks, kTokensAndOutputs, kTokensAndAll, kAllAndOutputs, kAll };

// Paddings in elements, of rows of codes (and of blocks' scales of w) and of blocks' scales of x.
struct Fp8Shape {
  int64_t tokens, inputs, outputs, padding, scale_padding;
};

struct Fp8Operands {
  // Any codes, w's scales from `least` to `most`, x's from 0.5 to 2; the same of a shape every
  // time.
  Fp8Operands(Device& device, const Fp8Shape& shape, Fp8Units units, double least, double most);

  bool blocks() const { return units == Fp8Units::kBlocks; }
  // Where in x_scale and weight_scale the scale of an element lies.
  int64_t XScaleAt(int64_t token, int64_t input) const;
  int64_t WeightScaleAt(int64_t output, int64_t input) const;
  void ExpectGuardsIntact() const;

  Fp8Shape shape;
  Fp8Units units;
  GuardedTensor x, x_scale, weight, weight_scale;
};

// The least scale of w with which sums of so many inputs are of some units: codes have a mean
// square of some 60^2.
inline double Fp8UnitSum(int64_t inputs) {
  return 1 / (3600 * std::sqrt(static_cast<double>(inputs)));
}

// The product of the codes and scales as they are now. Borrows the operands.
class Fp8Product {
 public:
  // `cuts`: as of Fp8BlockSum.
  Fp8Product(const Fp8Operands& operands, bool cuts);

  Fp8Element At(int64_t token, int64_t output) const;

 private:
  const Fp8Operands& operands_;
  bool cuts_;
  std::vector<double> x_, weight_, x_scale_, weight_scale_;
};

}  // namespace millrace

#endif  // KERNELS_TESTING_FP8_OPERANDS_H_
