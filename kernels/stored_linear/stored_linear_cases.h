// Shapes of StoredLinear, shared by test and bench.
#ifndef KERNELS_STORED_LINEAR_STORED_LINEAR_CASES_H_
#define KERNELS_STORED_LINEAR_STORED_LINEAR_CASES_H_

#include <cstdint>

namespace millrace {

struct StoredLinearCase {
  int64_t tokens;
  int64_t inputs;  // a multiple of 32, so that every format has it
  int64_t outputs;
  int64_t row_padding = 0;
  int32_t tile_row = 0;
  int32_t tile_col = 0;
};

inline constexpr StoredLinearCase kStoredLinearCases[] = {
    {0, 64, 8},
    {3, 64, 0},
    {2, 0, 5},
    {1, 32, 1},
    {1, 96, 7, 3},
    {3, 192, 128},
    {4, 160, 131, 1},
    {5, 416, 129, 0, 127, 1},
    {7, 288, 9, 2, 24},
    {2, 640, 6, 0, 0, 96},
    {2, 128, 300, 0, 64, 64},
    {65, 352, 33},
    {1030, 64, 13},
};

// Widths that FP4 does not have.
inline constexpr StoredLinearCase kStoredLinearOddCases[] = {
    {1, 1, 1}, {3, 7, 5}, {4, 137, 131, 1, 3, 5}, {2, 259, 6, 0, 126, 127}, {37, 131, 12},
};

// Flash's widest inputs, a few of its outputs.
inline constexpr StoredLinearCase kStoredLinearServingCases[] = {{1, 4096, 130}, {3, 8192, 40}};

// What the benchmark times: such a matrix, for one token, a few, and a prefill.
inline constexpr StoredLinearCase kStoredLinearServed[] = {
    {1, 4096, 2048},
    {6, 4096, 2048},
    {256, 4096, 2048},
};

// Flash's: q_a and kv fused, q_b, o_a of one group, o_b, a compressor's; tokens of a decode.
inline constexpr StoredLinearCase kStoredLinearServedFlash[] = {
    {1, 4096, 1536},  {2, 4096, 1536},  {4, 4096, 1536},  {8, 4096, 1536},  {16, 4096, 1536},
    {1, 1024, 32768}, {4, 1024, 32768}, {8, 1024, 32768}, {1, 4096, 1024},  {8, 4096, 1024},
    {1, 8192, 4096},  {4, 8192, 4096},  {8, 8192, 4096},  {16, 8192, 4096},
};

// More tiles than the fast path of a GPU has blocks: of one warp and of 16.
inline constexpr StoredLinearCase kStoredLinearTallCases[] = {
    {6, 128, 8400}, {9, 128, 8400}, {1, 2048, 1100}};

// Such that a GPU's fast path has them: all that a block, a warp or a tile may be short of.
inline constexpr StoredLinearCase kStoredLinearTileCases[] = {
    {1, 128, 1},    {2, 128, 9, 1},        {8, 1024, 40, 3},       {9, 256, 17},
    {3, 2176, 300}, {17, 2560, 131, 1, 5}, {33, 2048, 24, 0, 127},
};

}  // namespace millrace

#endif  // KERNELS_STORED_LINEAR_STORED_LINEAR_CASES_H_
