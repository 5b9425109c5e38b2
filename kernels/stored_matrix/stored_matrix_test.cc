#include "kernels/stored_matrix/stored_matrix.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/lowp/block_formats.h"
#include "kernels/stored_matrix/random_stored_matrix.h"
#include "kernels/stored_matrix/stored_matrix_cpu.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

absl::Span<const uint8_t> Bytes(const TensorView& t) {
  return {t.as<uint8_t>(), static_cast<size_t>(t.size())};
}

// As kernels/lowp dequantises it. Plain formats: as stored.
std::vector<float> Dequantised(const RandomStoredMatrix& matrix) {
  const StoredMatrix& m = matrix.view();
  const MatrixShape shape = {m.rows, m.cols};
  std::vector<float> w(static_cast<size_t>(m.rows * m.cols));
  switch (m.format) {
    case StoredFormat::kF32:
    case StoredFormat::kBF16:
      for (size_t i = 0; i < w.size(); ++i) {
        w[i] = static_cast<float>(matrix.At(0, 0, static_cast<int64_t>(i)));
      }
      break;
    case StoredFormat::kFp8:
      if (m.scales.dtype == DType::kF32) {
        const absl::Span<const float> scales(m.scales.as<float>(),
                                             static_cast<size_t>(m.scales.size()));
        DequantizeFp8(shape, Bytes(m.values), scales, absl::MakeSpan(w));
      } else {
        DequantizeFp8(shape, Bytes(m.values), Bytes(m.scales), absl::MakeSpan(w));
      }
      break;
    case StoredFormat::kMxFp4:
      DequantizeMxfp4(shape, Bytes(m.values), Bytes(m.scales), absl::MakeSpan(w));
      break;
    case StoredFormat::kNvFp4:
      DequantizeNvfp4(shape, Bytes(m.values), Bytes(m.scales),
                      {.stored = m.factors.as<float>()[0], .reciprocal = m.divide_by_factor},
                      absl::MakeSpan(w));
      break;
  }
  return w;
}

class StoredMatrixTest : public OpTest {};

// Multiplying with rows of the unit matrix gives the weights themselves, bit for bit those of the
// codecs: what "dequantised" means is said in one place.
TEST_P(StoredMatrixTest, WidensBitForBitAsTheCodecsDo) {
  constexpr int64_t kRows = 133, kCols = 224;
  std::vector<float> unit(kCols * kCols, 0.0f);
  for (size_t i = 0; i < kCols; ++i) unit[i * kCols + i] = 1.0f;
  std::vector<float> scratch(kStoredTileRows * kCols), out(kCols * kStoredTileRows);
  for (const StoredKind& kind : kStoredKinds) {
    TestRng rng(3);
    const RandomStoredMatrix matrix(device(), rng, kind, {.rows = kRows, .cols = kCols});
    const std::vector<float> want = Dequantised(matrix);
    for (int64_t row = 0; row < kRows; row += kStoredTileRows) {
      StoredTileFor(GetParam().isa)({.matrix = &matrix.view(),
                                     .row = row,
                                     .rows = std::min(kStoredTileRows, kRows - row),
                                     .x = unit.data(),
                                     .tokens = kCols,
                                     .widened = scratch.data(),
                                     .out = out.data()});
      for (int64_t r = 0; r < std::min(kStoredTileRows, kRows - row); ++r) {
        for (int64_t c = 0; c < kCols; ++c) {
          ASSERT_EQ(out[static_cast<size_t>(c * kStoredTileRows + r)],
                    want[static_cast<size_t>((row + r) * kCols + c)])
              << KindName(kind) << " " << row + r << " " << c;
        }
      }
    }
  }
}

TEST_P(StoredMatrixTest, PartsAndSizes) {
  for (const StoredKind& kind : kStoredKinds) {
    TestRng rng(4);
    const RandomStoredMatrix stack(device(), rng, kind, {.count = 3, .rows = 300, .cols = 96});
    EXPECT_TRUE(CheckStoredMatrix("Test", "m", DeviceType::kCpu, stack.view()).ok());
    const StoredMatrix one = stack.view().Matrix(1);
    EXPECT_TRUE(CheckStoredMatrix("Test", "m", DeviceType::kCpu, one).ok()) << KindName(kind);
    EXPECT_EQ(3 * one.bytes(), stack.view().bytes());
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 300}, {0, 0}, {127, 129}, {128, 300}, {299, 300}, {300, 300}}) {
      const StoredMatrix part = one.Rows(begin, end);
      EXPECT_TRUE(CheckStoredMatrix("Test", "m", DeviceType::kCpu, part).ok())
          << KindName(kind) << " " << begin;
      EXPECT_EQ(part.rows, end - begin);
    }
  }
  TestRng rng(5);
  const auto bytes = [&](const StoredKind& kind) {
    return RandomStoredMatrix(device(), rng, kind, {.rows = 256, .cols = 256}).view().bytes();
  };
  EXPECT_EQ(bytes({StoredFormat::kBF16}), 2 * 65536);
  EXPECT_EQ(bytes({StoredFormat::kFp8}), 65536 + 4);
  EXPECT_EQ(bytes({StoredFormat::kFp8, true}), 65536 + 16);
  EXPECT_EQ(bytes({StoredFormat::kMxFp4}), 32768 + 2048);
  EXPECT_EQ(bytes({StoredFormat::kNvFp4}), 32768 + 4096 + 4);
}

INSTANTIATE_TEST_SUITE_P(Devices, StoredMatrixTest, ::testing::ValuesIn(DevicesUnderTest()),
                         DeviceName);

}  // namespace
}  // namespace millrace
