// Matrices of random codes for the tests of ops that have stored weights, with their values by the
// formats' definitions.
#ifndef KERNELS_STORED_MATRIX_RANDOM_STORED_MATRIX_H_
#define KERNELS_STORED_MATRIX_RANDOM_STORED_MATRIX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/stored_matrix/stored_matrix.h"
#include "kernels/testing/guarded_tensor.h"

namespace millrace {

struct StoredKind {
  StoredFormat format = StoredFormat::kBF16;
  bool f32_scales = false;        // kFp8
  bool divide_by_factor = false;  // kNvFp4
};

// Every way that a matrix can be stored.
inline constexpr StoredKind kStoredKinds[] = {
    {StoredFormat::kF32},
    {StoredFormat::kBF16},
    {StoredFormat::kFp8},
    {StoredFormat::kFp8, true},
    {StoredFormat::kMxFp4},
    {StoredFormat::kNvFp4},
    {StoredFormat::kNvFp4, false, true},
};

std::string KindName(const StoredKind& kind);

struct StoredSizes {
  int64_t count = 1;
  int64_t rows = 0;
  int64_t cols = 0;
  int32_t tile_row = 0;  // kFp8
  int32_t tile_col = 0;
};

// All finite codes of a format appear, scales are of moderate size. `cols` must be whole blocks.
class RandomStoredMatrix final {
 public:
  RandomStoredMatrix(Device& device, TestRng& rng, const StoredKind& kind,
                     const StoredSizes& sizes);

  const StoredMatrix& view() const { return view_; }
  // Value of matrix `index` at (row, col).
  double At(int64_t index, int64_t row, int64_t col) const {
    return values_[static_cast<size_t>((index * view_.rows + row) * view_.cols + col)];
  }
  // Makes one value a NaN: kF32 and kBF16 by its value, kFp8 by its code, FP4 by its
  // block's scale, and so for the whole block.
  void SetNan(int64_t index, int64_t row, int64_t col);

 private:
  void MakeFp8(TestRng& rng);
  void MakeFp4(TestRng& rng);
  double ScaleAt(int64_t index, int64_t row, int64_t col) const;
  void Read();  // fills scales_ and values_

  StoredMatrix view_;
  std::vector<GuardedTensor> tensors_;  // values, scales, factors
  std::vector<double> scales_;          // as stored
  std::vector<double> values_;
};

}  // namespace millrace

#endif  // KERNELS_STORED_MATRIX_RANDOM_STORED_MATRIX_H_
