// Shapes of the hyper-connections, shared by test and bench.
#ifndef KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_CASES_H_
#define KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_CASES_H_

#include <cstdint>

namespace millrace {

struct HyperConnectionCase {
  int64_t tokens;
  int64_t streams;
  int64_t width;
  int64_t row_padding;
};

inline constexpr HyperConnectionCase kHyperConnectionCases[] = {
    {0, 4, 64, 0},
    {1, 1, 1, 0},
    {1, 4, 96, 0},
    {2, 4, 512, 8},
    {13, 4, 137, 3},
    {5, 2, 33, 1},
    {4, 8, 24, 0},
    {90, 4, 5, 0},
    {17, 3, 16, 0},
    {9, 4, 192, 0},
    // Tensor cores on CUDA: groups of a token's streams that are whole, cut short or one of
    // several; fewer streams; enough tokens for the kernel of a prefill.
    {37, 4, 128, 8},
    {19, 3, 384, 0},
    {3, 1, 1152, 8},
    {4, 2, 640, 0},
    {531, 4, 384, 8},
    {1031, 4, 384, 8},
    {1100, 2, 128, 0},
};

// The widest published model.
inline constexpr HyperConnectionCase kHyperConnectionWidest = {2, 4, 7168, 0};

// More tokens than CUDA takes in one pass.
inline constexpr HyperConnectionCase kHyperConnectionLongest = {4099, 4, 128, 0};

// What the benchmark times, with four streams.
struct HyperConnectionServed {
  int64_t tokens;
  int64_t width;
  bool large = false;  // of a size that only a GPU is given
};

inline constexpr HyperConnectionServed kHyperConnectionServed[] = {
    {1, 4096},          {64, 4096},         {128, 4096, true},  {512, 4096, true},
    {1024, 4096, true}, {4096, 4096, true}, {8192, 4096, true}, {1, 7168},
    {64, 7168, true},   {128, 7168, true},  {4096, 7168, true},
};

}  // namespace millrace

#endif  // KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_CASES_H_
