// Shapes of RmsNormQuantize, shared by its test and its benchmark.
#ifndef KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_CASES_H_
#define KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_CASES_H_

#include <cstdint>

namespace millrace {

struct RmsNormQuantizeCase {
  int64_t tokens, size, row_padding;
};

// Rows of less than a group, of one, of groups and a rest; of one, two and four words a thread and
// more than the kernel keeps; rows off 16 bytes and widths off 8, which take the two ops.
inline constexpr RmsNormQuantizeCase kRmsNormQuantizeCases[] = {
    {0, 64, 0},   {1, 8, 0},    {3, 128, 0},   {13, 137, 0}, {7, 576, 8},  {2, 2048, 0},
    {5, 2056, 8}, {3, 4096, 0}, {33, 7168, 0}, {2, 8192, 8}, {2, 8200, 0}, {5, 256, 3}};

// Widths of LLaMA-3.1-8B and DeepSeek-V3.
struct RmsNormQuantizeServed {
  int64_t tokens, size;
};
inline constexpr RmsNormQuantizeServed kRmsNormQuantizeServed[] = {
    {1, 4096}, {64, 4096}, {512, 4096}, {4096, 4096}, {8192, 4096}, {64, 7168}, {8192, 7168}};

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_CASES_H_
