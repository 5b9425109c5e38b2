// Philox4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC'11): a number depends on key and counter alone, so draws need no state.
#ifndef KERNELS_SAMPLE_SAMPLE_PHILOX_H_
#define KERNELS_SAMPLE_SAMPLE_PHILOX_H_

#include <array>
#include <cstdint>

namespace millrace {

constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xd2511f53u} * counter[0];
    const uint64_t p1 = uint64_t{0xcd9e8d57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9e3779b9u;
    key[1] += 0xbb67ae85u;
  }
  return counter;
}

// In [0, 1), with 53 bits.
constexpr double PhiloxUniform(uint64_t seed, int64_t position) {
  const uint64_t count = static_cast<uint64_t>(position);
  const std::array<uint32_t, 4> out =
      Philox4x32({static_cast<uint32_t>(count), static_cast<uint32_t>(count >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = uint64_t{out[1]} << 32 | out[0];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_PHILOX_H_
