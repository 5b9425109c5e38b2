// Shapes of SwigluQuantize, shared by its test and its benchmark.
#ifndef KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_CASES_H_
#define KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_CASES_H_

#include <cstdint>

namespace millrace {

struct SwigluQuantizeCase {
  int64_t tokens, size, row_padding;
  int64_t block = 0;
  float limit = 0;
};

// Rows of less than a group, of one, of groups and a rest; of one to eight words a thread and more
// than the kernel keeps; blocks of gates; rows off 16 bytes and widths off 8, which take the two
// ops.
inline constexpr SwigluQuantizeCase kSwigluQuantizeCases[] = {
    {0, 64, 0},         {1, 8, 0},       {3, 128, 0},    {13, 137, 0},           {7, 576, 8, 8},
    {2, 2048, 0, 0, 1}, {5, 2056, 8, 8}, {33, 3072, 0},  {3, 7168, 0, 128},      {2, 14336, 0, 8},
    {2, 16392, 0, 0},   {5, 256, 3},     {4, 128, 0, 4}, {300, 136, 0, 8, 0.75f}};

// Widths of LLaMA-3.1-8B and DeepSeek-V3's experts.
struct SwigluQuantizeServed {
  int64_t tokens, size, block;
};
inline constexpr SwigluQuantizeServed kSwigluQuantizeServed[] = {
    {1, 14336, 0},    {64, 14336, 0},   {512, 14336, 0}, {4096, 14336, 0},
    {4096, 14336, 8}, {8192, 14336, 0}, {8192, 2048, 0}};

}  // namespace millrace

#endif  // KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_CASES_H_
