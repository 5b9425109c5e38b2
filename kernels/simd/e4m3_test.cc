#include "kernels/simd/e4m3.h"

#include <bit>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/core/dtype.h"
#include "kernels/lowp/small_float.h"

namespace millrace::simd {
namespace {

constexpr int kLanes = 4;

uint8_t Stored(float x) {
  E4M3 out[kLanes];
  Store<kLanes>(out, F<kLanes>{0, x, -x, 0});
  EXPECT_EQ(out[2].bits, std::isnan(x) ? 0x7f : EncodeE4M3(-x)) << x;
  return out[1].bits;
}

TEST(E4M3Test, LoadsEveryCode) {
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    const E4M3 in[2 * kLanes] = {{}, {}, {}, {bits}, {}, {bits}, {}, {}};
    F<kLanes> a, b;
    LoadPair<kLanes>(in, &a, &b);
    if (std::isnan(kE4M3Values[bits])) {
      EXPECT_TRUE(std::isnan(a[3]) && std::isnan(b[1])) << code;
      continue;
    }
    EXPECT_EQ(std::bit_cast<uint32_t>(a[3]), std::bit_cast<uint32_t>(kE4M3Values[bits])) << code;
    EXPECT_EQ(std::bit_cast<uint32_t>(b[1]), std::bit_cast<uint32_t>(kE4M3Values[bits])) << code;
  }
}

TEST(E4M3Test, StoresEveryBFloat16LikeTheDefinition) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const float x = ToFloat(BFloat16{static_cast<uint16_t>(bits)});
    EXPECT_EQ(Stored(x), std::isnan(x) ? 0x7f : EncodeE4M3(x)) << x;
  }
}

TEST(E4M3Test, RoundsAroundEveryTie) {
  for (int code = 0; code < 0x7e; ++code) {
    const float low = kE4M3Values[static_cast<size_t>(code)];
    const float tie = (low + kE4M3Values[static_cast<size_t>(code + 1)]) / 2;
    for (const float x : {std::nextafter(tie, 0.0f), tie, std::nextafter(tie, 1e9f)}) {
      EXPECT_EQ(Stored(x), EncodeE4M3(x)) << x;
    }
  }
}

}  // namespace
}  // namespace millrace::simd
