// The probes for one vector width. Included inside an anonymous namespace of millrace by one file
// per instruction set, after bench_probes.h and simd.h.

// Four sequential streams, as a kernel with four rows at a time reads. Adding the bits costs less
// than loading them.
template <int kLanes>
float Read(const char* data, int64_t bytes) {
  using Ints = simd::I<kLanes>;
  constexpr int64_t kVector = kLanes * 4;
  const int64_t quarter = bytes / 4;
  Ints sums[4] = {};
  for (int64_t i = 0; i < quarter; i += kVector) {
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      Ints v;
      __builtin_memcpy(&v, data + s * quarter + i, sizeof(v));
      sums[s] ^= v;
    }
  }
  const Ints all = (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]);
  int32_t result = 0;
  for (int i = 0; i < kLanes; ++i) result ^= all[i];
  return static_cast<float>(result);
}

// Enough independent chains to hide the latency of an addition on any of these cores.
inline constexpr int kChains = 12;

template <int kLanes>
float MultiplyAdd(int64_t steps) {
  simd::F<kLanes> sums[kChains] = {};
  const simd::F<kLanes> factor = simd::Set<kLanes>(0.999f), addend = simd::Set<kLanes>(0.001f);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      simd::F<kLanes> sum = sums[c] * factor + addend;
      __asm__("" : "+v"(sum));  // keeps the chains apart: they hold equal values
      sums[c] = sum;
    }
  }
  simd::F<kLanes> all = {};
  // Unrolled too: a loop over the array would keep it in memory, and the stores would be measured.
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) all += sums[c];
  return simd::Sum(all);
}

template <int kLanes>
inline constexpr BenchProbes kProbes = {Read<kLanes>, MultiplyAdd<kLanes>, 2 * kLanes* kChains};
