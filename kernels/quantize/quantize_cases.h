// Shapes of Quantize, shared by its test and its benchmark.
#ifndef KERNELS_QUANTIZE_QUANTIZE_CASES_H_
#define KERNELS_QUANTIZE_QUANTIZE_CASES_H_

#include <cstdint>

namespace millrace {

struct QuantizeCase {
  int64_t tokens, size, row_padding;
};

// Sizes short of a group and past one, short of a vector of 8, more than the four groups and 16
// tokens of a block, rows that are not aligned, more tokens than there are blocks' maxima, rows of
// two to nine words a thread, columns short of a strip of 32 and past several.
inline constexpr QuantizeCase kQuantizeCases[] = {
    {1, 1, 0},     {1, 7, 1},     {3, 128, 0},   {5, 129, 3},    {17, 520, 8},
    {2, 1032, 0},  {16, 640, 0},  {33, 2056, 8}, {1100, 24, 40}, {1, 7168, 0},
    {2, 14336, 0}, {1, 16400, 0}, {264, 72, 8},  {257, 33, 1}};

// Widths of DeepSeek-V4 and LLaMA-3.1-8B.
inline constexpr QuantizeCase kQuantizeServed[] = {
    {1, 4096, 0}, {64, 7168, 0}, {4096, 4096, 0}, {8192, 7168, 0}};

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_QUANTIZE_CASES_H_
