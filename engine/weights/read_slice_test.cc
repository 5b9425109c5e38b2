#include "engine/weights/read_slice.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

// A tensor over its own bytes, which start at an odd address as they may in a file.
class StoredTensor {
 public:
  template <typename Bits>
  StoredTensor(FileDType dtype, std::vector<int64_t> shape, const std::vector<Bits>& bits)
      : bytes_(bits.size() * sizeof(Bits) + 1) {
    std::memcpy(bytes_.data() + 1, bits.data(), bits.size() * sizeof(Bits));
    info_ = {.name = "w",
             .dtype = dtype,
             .shape = std::move(shape),
             .data = absl::MakeConstSpan(bytes_).subspan(1)};
  }
  const TensorInfo& info() const { return info_; }

 private:
  std::vector<std::byte> bytes_;
  TensorInfo info_;
};

std::vector<uint32_t> Float32Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// The value of half-precision bits by its definition.
double HalfOracle(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(HalfToFloat, AllValues) {
  for (int bits = 0; bits <= 0xffff; ++bits) {
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    const double want = HalfOracle(static_cast<uint16_t>(bits));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
    } else {
      EXPECT_EQ(value, want) << bits;
      EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    }
  }
}

TEST(ReadSlice, EveryBoxOfAMatrix) {
  constexpr int64_t kRows = 5, kCols = 7;
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.5f;
  const StoredTensor tensor(FileDType::kF32, {kRows, kCols}, Float32Bits(values));
  for (int64_t r0 = 0; r0 <= kRows; ++r0) {
    for (int64_t r1 = r0; r1 <= kRows; ++r1) {
      for (int64_t c0 = 0; c0 <= kCols; ++c0) {
        for (int64_t c1 = c0; c1 <= kCols; ++c1) {
          const Range ranges[] = {{r0, r1}, {c0, c1}};
          const auto count = static_cast<size_t>((r1 - r0) * (c1 - c0));
          ASSERT_EQ(SliceElements(ranges), static_cast<int64_t>(count));
          std::vector<float> out(count + 1, -1.0f);
          ASSERT_TRUE(ReadSlice(tensor.info(), ranges, DType::kF32, out.data()).ok());
          size_t i = 0;
          for (int64_t row = r0; row < r1; ++row) {
            for (int64_t col = c0; col < c1; ++col) {
              ASSERT_EQ(out[i++], values[static_cast<size_t>(row * kCols + col)]);
            }
          }
          ASSERT_EQ(out[count], -1.0f);  // nothing past the box
        }
      }
    }
  }
}

TEST(ReadSlice, Vectors) {
  const StoredTensor tensor(FileDType::kF32, {4}, Float32Bits({1, 2, 3, 4}));
  float out[2];
  ASSERT_TRUE(ReadSlice(tensor.info(), {Range{1, 3}}, DType::kF32, out).ok());
  EXPECT_EQ(out[0], 2.0f);
  EXPECT_EQ(out[1], 3.0f);
}

TEST(ReadSlice, NarrowingRoundsToNearestEven) {
  const struct {
    uint32_t from;
    uint16_t to;
  } kCases[] = {
      {0x3f800000, 0x3f80},  // 1
      {0x3f807fff, 0x3f80},  // just below the middle
      {0x3f808000, 0x3f80},  // the middle goes to even, down
      {0x3f808001, 0x3f81},  // just above the middle
      {0x3f818000, 0x3f82},  // the middle goes to even, up
      {0xbf818000, 0xbf82},  // either sign
      {0x7f7fffff, 0x7f80},  // overflow
      {0x7f800000, 0x7f80},  // infinity
      {0x00000001, 0x0000},  // subnormal
      {0x80000000, 0x8000},  // -0
  };
  for (const auto& c : kCases) {
    const StoredTensor tensor(FileDType::kF32, {1}, std::vector<uint32_t>{c.from});
    uint16_t out = 0;
    ASSERT_TRUE(ReadSlice(tensor.info(), {Range{0, 1}}, DType::kBF16, &out).ok());
    EXPECT_EQ(out, c.to) << std::hex << c.from;
  }
  for (const uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xffc00000u}) {
    const StoredTensor tensor(FileDType::kF32, {1}, std::vector<uint32_t>{nan});
    BFloat16 out;
    ASSERT_TRUE(ReadSlice(tensor.info(), {Range{0, 1}}, DType::kBF16, &out).ok());
    EXPECT_TRUE(std::isnan(ToFloat(out)));
  }
}

TEST(ReadSlice, AllConversions) {
  const std::vector<uint16_t> bf16 = {0x3f80, 0xc049, 0x7fc0, 0x0001};
  const StoredTensor from_bf16(FileDType::kBF16, {2, 2}, bf16);
  const Range all[] = {{0, 2}, {0, 2}};
  std::vector<uint16_t> same(4);
  ASSERT_TRUE(ReadSlice(from_bf16.info(), all, DType::kBF16, same.data()).ok());
  EXPECT_EQ(same, bf16);
  std::vector<uint32_t> wide(4);
  ASSERT_TRUE(ReadSlice(from_bf16.info(), all, DType::kF32, wide.data()).ok());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(wide[i], static_cast<uint32_t>(bf16[i]) << 16);

  const std::vector<uint16_t> f16 = {0x3c00, 0xc248, 0x0001, 0x7bff};
  const StoredTensor from_f16(FileDType::kF16, {2, 2}, f16);
  std::vector<float> floats(4);
  ASSERT_TRUE(ReadSlice(from_f16.info(), all, DType::kF32, floats.data()).ok());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(floats[i], HalfOracle(f16[i]));
  ASSERT_TRUE(ReadSlice(from_f16.info(), all, DType::kBF16, same.data()).ok());
  EXPECT_EQ(same, (std::vector<uint16_t>{0x3f80, 0xc049, 0x3380, 0x4780}));
}

TEST(ReadSlice, Scalars) {
  const StoredTensor scalar(FileDType::kF32, {}, Float32Bits({2.5f}));
  float out = 0;
  ASSERT_TRUE(ReadSlice(scalar.info(), {}, DType::kF32, &out).ok());
  EXPECT_EQ(out, 2.5f);
  out = 0;
  ASSERT_TRUE(ReadRawSlice(scalar.info(), {}, &out).ok());
  EXPECT_EQ(out, 2.5f);
}

TEST(ReadSlice, IntegersBecomeInt32) {
  const std::vector<int64_t> values = {0, -1, 7, 2147483647, -2147483648, 384};
  const StoredTensor wide(FileDType::kI64, {2, 3}, values);
  std::vector<int32_t> out(4);
  const Range box[] = {{0, 2}, {1, 3}};
  ASSERT_TRUE(ReadSlice(wide.info(), box, DType::kI32, out.data()).ok());
  EXPECT_EQ(out, (std::vector<int32_t>{-1, 7, -2147483647 - 1, 384}));
  const StoredTensor same(FileDType::kI32, {2, 2}, out);
  std::vector<int32_t> again(2);
  const Range row[] = {{1, 2}, {0, 2}};
  ASSERT_TRUE(ReadSlice(same.info(), row, DType::kI32, again.data()).ok());
  EXPECT_EQ(again, (std::vector<int32_t>{-2147483647 - 1, 384}));
}

TEST(ReadSlice, RawBytesOfEveryWidth) {
  const Range box[] = {{1, 3}, {1, 2}};
  const auto check = [&](FileDType dtype, auto values) {
    const StoredTensor tensor(dtype, {3, 2}, values);
    decltype(values) out(3, 9);
    ASSERT_TRUE(ReadRawSlice(tensor.info(), box, out.data()).ok());
    EXPECT_EQ(out, (decltype(values){values[3], values[5], 9}));  // and nothing past the box
  };
  for (const FileDType dtype : {FileDType::kF8E4M3, FileDType::kF8E8M0, FileDType::kI8}) {
    check(dtype, std::vector<uint8_t>{0x7f, 0x80, 0xff, 0, 1, 0x55});
  }
  check(FileDType::kBF16, std::vector<uint16_t>{0x7fc1, 2, 3, 0xffff, 5, 6});
  check(FileDType::kF32, std::vector<uint32_t>{0x7fc00001, 2, 3, 0xffffffff, 5, 6});
  check(FileDType::kI64, std::vector<int64_t>{1, 2, 3, -1, 5, int64_t{1} << 60});
  const StoredTensor fp4(FileDType::kF4, {2, 2}, std::vector<uint8_t>{1, 2});
  EXPECT_NE(
      ReadRawSlice(fp4.info(), {Range{0, 2}, Range{0, 2}}, nullptr).message().find("no whole"),
      std::string::npos);
}

TEST(ReadSlice, Refusals) {
  const StoredTensor matrix(FileDType::kF32, {2, 2}, Float32Bits({1, 2, 3, 4}));
  const StoredTensor bytes(FileDType::kI8, {2}, std::vector<uint8_t>{1, 2});
  const StoredTensor cube(FileDType::kF32, {1, 1, 1}, Float32Bits({1}));
  const StoredTensor wide(FileDType::kI64, {2}, std::vector<int64_t>{1, int64_t{1} << 31});
  const Range kAll = {0, 2};
  const struct {
    const StoredTensor& tensor;
    std::vector<Range> ranges;
    DType want;
    const char* reason;
  } kCases[] = {
      {matrix, {kAll}, DType::kF32, "cannot take 1 ranges of shape [2, 2]"},
      {matrix, {kAll, {0, 3}}, DType::kF32, "[0, 3) of dimension 1"},
      {matrix, {{-1, 1}, kAll}, DType::kF32, "[-1, 1) of dimension 0"},
      {matrix, {{2, 1}, kAll}, DType::kF32, "[2, 1) of dimension 0"},
      {matrix, {kAll, kAll}, DType::kF16, "cannot be read as float16"},
      {bytes, {kAll}, DType::kF32, "stored as I8, which cannot be read as float32"},
      {cube, {{0, 1}, {0, 1}, {0, 1}}, DType::kF32, "cannot take 3 ranges"},
      {bytes, {kAll}, DType::kI32, "stored as I8, which cannot be read as int32"},
      {wide, {kAll}, DType::kI32, "holds a number that int32 cannot"},
      {wide, {kAll}, DType::kF32, "stored as I64, which cannot be read as float32"},
  };
  for (const auto& c : kCases) {
    float out[8];
    const absl::Status status = ReadSlice(c.tensor.info(), c.ranges, c.want, out);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const std::string message(status.message());
    EXPECT_EQ(message.rfind("tensor 'w': ", 0), 0u) << message;
    EXPECT_NE(message.find(c.reason), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace millrace
