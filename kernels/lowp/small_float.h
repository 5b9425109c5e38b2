// Floats of 8 and 4 bits on the host: FP8 E4M3 and E5M2, FP4 E2M1, and the power-of-two scales
// E8M0. Encoders round the exact value to nearest, ties to even, and saturate: no result is
// infinite. They take doubles, so that a quotient of a float and a scale is rounded once. Any
// thread.
#ifndef KERNELS_LOWP_SMALL_FLOAT_H_
#define KERNELS_LOWP_SMALL_FLOAT_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace millrace {

// Sign, exponent, mantissa, from the top; subnormals as IEEE has them.
struct SmallFloatFormat {
  int mantissa_bits;
  int min_exponent;  // of the smallest normal number
  int max;           // the largest finite magnitude
  uint8_t sign_bit;
  uint8_t positive_nan;  // what a NaN becomes
  bool nan_keeps_sign;
};

// "fn": no infinities; 0x7f and 0xff are its only NaNs.
inline constexpr SmallFloatFormat kE4M3 = {.mantissa_bits = 3,
                                           .min_exponent = -6,
                                           .max = 448,
                                           .sign_bit = 0x80,
                                           .positive_nan = 0x7f,
                                           .nan_keeps_sign = true};
// As IEEE: 0x7c and 0xfc are infinities, which encoding never gives, beyond them are NaNs.
inline constexpr SmallFloatFormat kE5M2 = {.mantissa_bits = 2,
                                           .min_exponent = -14,
                                           .max = 57344,
                                           .sign_bit = 0x80,
                                           .positive_nan = 0x7f,
                                           .nan_keeps_sign = true};
// 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. It has no NaN: one becomes +6, as in the GPU's
// conversion. Whoever quantises must refuse NaNs before.
inline constexpr SmallFloatFormat kE2M1 = {.mantissa_bits = 1,
                                           .min_exponent = 0,
                                           .max = 6,
                                           .sign_bit = 0x08,
                                           .positive_nan = 0x07,
                                           .nan_keeps_sign = false};

namespace lowp_internal {

// 2^exponent. REQUIRES: -1022 <= exponent <= 1023.
constexpr double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// floor(log2(x)) of a normal x > 0; -1023 for smaller ones.
constexpr int ExponentOf(double x) {
  return static_cast<int>(std::bit_cast<uint64_t>(x) >> 52) - 1023;
}

template <SmallFloatFormat kFormat>
constexpr uint8_t Encode(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint8_t sign = (bits >> 63) != 0 ? kFormat.sign_bit : uint8_t{0};
  if (x != x) {
    return static_cast<uint8_t>(kFormat.positive_nan | (kFormat.nan_keeps_sign ? sign : 0));
  }
  const double magnitude = std::min(std::bit_cast<double>(bits & ~(uint64_t{1} << 63)),
                                    static_cast<double>(kFormat.max));
  const int exponent = std::max(ExponentOf(magnitude), kFormat.min_exponent);
  // In units of the result's last place, below 2^(mantissa_bits + 1): added to 2^52, where doubles
  // are the integers, it is rounded by the hardware, and lies in the low bits of the sum.
  constexpr double kIntegers = 0x1p52;
  const double units = magnitude * PowerOfTwo(kFormat.mantissa_bits - exponent);
  const uint64_t rounded =
      std::bit_cast<uint64_t>(units + kIntegers) - std::bit_cast<uint64_t>(kIntegers);
  // A carry out of the mantissa raises the exponent, and the leading bit of a normal number does
  // so by one over a subnormal's: exactly the next code.
  const uint64_t code =
      (static_cast<uint64_t>(exponent - kFormat.min_exponent) << kFormat.mantissa_bits) + rounded;
  return static_cast<uint8_t>(sign | code);
}

// The finite value of a code, by the definition.
template <SmallFloatFormat kFormat>
constexpr float FiniteValue(uint8_t code) {
  const int magnitude = code & (kFormat.sign_bit - 1);
  const int mantissa = magnitude & ((1 << kFormat.mantissa_bits) - 1);
  const int biased = magnitude >> kFormat.mantissa_bits;
  const int leading = biased == 0 ? 0 : 1 << kFormat.mantissa_bits;
  const int exponent = kFormat.min_exponent + std::max(biased, 1) - 1 - kFormat.mantissa_bits;
  const double value = (leading + mantissa) * PowerOfTwo(exponent);
  return static_cast<float>((code & kFormat.sign_bit) != 0 ? -value : value);
}

constexpr std::array<float, 256> MakeE4M3Values() {
  std::array<float, 256> values = {};
  for (int code = 0; code < 256; ++code) {
    const bool nan = (code & 0x7f) == 0x7f;
    values[code] = nan ? std::numeric_limits<float>::quiet_NaN()
                       : FiniteValue<kE4M3>(static_cast<uint8_t>(code));
  }
  return values;
}

constexpr std::array<float, 256> MakeE5M2Values() {
  std::array<float, 256> values = {};
  for (int code = 0; code < 256; ++code) {
    const int magnitude = code & 0x7f;
    const float infinity = std::numeric_limits<float>::infinity();
    values[code] = FiniteValue<kE5M2>(static_cast<uint8_t>(code));
    if (magnitude == 0x7c) values[code] = code < 0x80 ? infinity : -infinity;
    if (magnitude > 0x7c) values[code] = std::numeric_limits<float>::quiet_NaN();
  }
  return values;
}

constexpr std::array<float, 16> MakeE2M1Values() {
  std::array<float, 16> values = {};
  for (int code = 0; code < 16; ++code) {
    values[code] = FiniteValue<kE2M1>(static_cast<uint8_t>(code));
  }
  return values;
}

constexpr std::array<float, 256> MakeE8M0Values() {
  std::array<float, 256> values = {};
  // Code 0 is 2^-127, a subnormal float.
  for (int code = 0; code < 255; ++code) {
    values[code] = static_cast<float>(PowerOfTwo(code - 127));
  }
  values[255] = std::numeric_limits<float>::quiet_NaN();
  return values;
}

}  // namespace lowp_internal

// The value of each code, exact.
inline constexpr std::array<float, 256> kE4M3Values = lowp_internal::MakeE4M3Values();
inline constexpr std::array<float, 256> kE5M2Values = lowp_internal::MakeE5M2Values();
inline constexpr std::array<float, 16> kE2M1Values = lowp_internal::MakeE2M1Values();
inline constexpr std::array<float, 256> kE8M0Values = lowp_internal::MakeE8M0Values();

constexpr uint8_t EncodeE4M3(double x) { return lowp_internal::Encode<kE4M3>(x); }
constexpr uint8_t EncodeE5M2(double x) { return lowp_internal::Encode<kE5M2>(x); }
// In the low four bits.
constexpr uint8_t EncodeE2M1(double x) { return lowp_internal::Encode<kE2M1>(x); }

// The smallest power of two not below x, at least 2^-127 and at most 2^127; NaN becomes 0xff.
// Scales round up, not to nearest, so that no scaled value leaves the range. REQUIRES: x >= 0 or
// NaN.
constexpr uint8_t EncodeE8M0RoundUp(double x) {
  if (x != x) return 0xff;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const bool is_power = (bits & ((uint64_t{1} << 52) - 1)) == 0;
  const int exponent = lowp_internal::ExponentOf(x) + (is_power ? 0 : 1);
  return static_cast<uint8_t>(std::clamp(exponent, -127, 127) + 127);
}

static_assert(EncodeE4M3(448) == 0x7e && EncodeE4M3(1e30) == 0x7e && kE4M3Values[0x7e] == 448);
static_assert(EncodeE5M2(-1e30) == 0xfb && kE5M2Values[0xfb] == -57344);
static_assert(EncodeE2M1(2.5) == 4 && EncodeE2M1(3.5) == 6 && EncodeE2M1(-5) == 14);
static_assert(EncodeE8M0RoundUp(1) == 127 && EncodeE8M0RoundUp(1.0001) == 128);

}  // namespace millrace

#endif  // KERNELS_LOWP_SMALL_FLOAT_H_
