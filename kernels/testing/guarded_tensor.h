// A tensor for op tests: owns device memory with guard bytes before, after and between its rows.
#ifndef KERNELS_TESTING_GUARDED_TENSOR_H_
#define KERNELS_TESTING_GUARDED_TENSOR_H_

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/device.h"
#include "kernels/core/tensor_view.h"
#include "kernels/testing/test_rng.h"

namespace millrace {

// Values go in and come out as doubles (exact for every dtype here but large i64). Supports f32,
// bf16, i32, i64 and u8. Guards hold NaN in float tensors, so an op that reads past a row shows it.
// Copies are synchronous. Aborts on a device error: tests have no use for going on.
class GuardedTensor final {
 public:
  // `row_padding`: guard elements after each innermost row. Every element starts as a guard, so an
  // element that an op forgot to write shows as NaN (floats).
  GuardedTensor(Device& device, DType dtype, std::vector<int64_t> shape, int64_t row_padding = 0);

  const TensorView& view() const { return view_; }
  int64_t size() const { return view_.size(); }

  // Row-major values of all elements, rounded to the dtype. REQUIRES: values.size() == size().
  GuardedTensor& Set(const std::vector<double>& values);
  GuardedTensor& SetAll(double value);
  GuardedTensor& SetUniform(TestRng& rng, double low, double high);
  GuardedTensor& SetNormal(TestRng& rng, double scale = 1.0);
  GuardedTensor& SetIntegers(TestRng& rng, int64_t low, int64_t high);

  // Row-major values as stored.
  std::vector<double> Get() const;
  // The stored bytes of all elements (without guards), for bit-for-bit comparisons.
  std::vector<uint8_t> GetBytes() const;

  // Success when no guard byte changed; else where the first changed one lies.
  ::testing::AssertionResult GuardsIntact() const;

 private:
  std::vector<uint8_t> Download() const;
  void Upload(const std::vector<uint8_t>& bytes);
  // Byte offset of each element from the start of the buffer, row-major.
  std::vector<int64_t> Offsets() const;

  Device& device_;
  Buffer buffer_;
  TensorView view_;
  uint8_t guard_;
};

// Every element of `expected` and `actual` whose difference counts; prints the worst.
struct Tolerance {
  double absolute = 0;
  double relative = 0;  // of |expected|
};

// NaNs and infinities must stand at the same places (and have the same sign); then each
// |actual - expected| <= absolute + relative * |expected|.
::testing::AssertionResult AllClose(const std::vector<double>& actual,
                                    const std::vector<double>& expected, Tolerance tolerance);

}  // namespace millrace

#endif  // KERNELS_TESTING_GUARDED_TENSOR_H_
