// Shapes of Fp8Gemm, shared by its test and its benchmark.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_CASES_H_
#define KERNELS_FP8_GEMM_FP8_GEMM_CASES_H_

#include <cstdint>

namespace millrace {

// Paddings in elements, of rows of codes and of scales of x.
struct Fp8GemmCase {
  int64_t tokens, inputs, outputs, padding, scale_padding;
};

// Each side of every edge: one and several blocks of 128 inputs and outputs, the last short; each
// width of the kernels for few tokens, tiles that one and up to eight blocks of a grid cut; one and
// several tiles of the kernel for many, rows and columns short of them, an odd number of rows of
// tiles; rows off 16 bytes, which only the plain kernel takes; scales off
// 16 bytes, which mma.sync takes, and a single row of them, which every kernel does.
inline constexpr Fp8GemmCase kFp8GemmCases[] = {
    {0, 128, 8, 0, 0},      {1, 16, 8, 0, 3},       {3, 128, 128, 0, 1},    {5, 130, 129, 14, 3},
    {8, 1024, 264, 0, 0},   {8, 6400, 136, 0, 0},   {16, 2048, 200, 16, 0}, {17, 272, 333, 0, 3},
    {32, 512, 1000, 0, 0},  {50, 640, 130, 0, 2},   {64, 1040, 258, 0, 0},  {100, 512, 256, 0, 0},
    {128, 2304, 130, 0, 0}, {129, 256, 384, 0, 3},  {260, 272, 520, 0, 0},  {300, 144, 333, 0, 0},
    {385, 128, 776, 16, 3}, {7, 100, 33, 1, 0},     {131, 33, 40, 0, 0},    {18, 144, 140, 16, 1},
    {130, 656, 264, 0, 0},  {3, 2048, 4104, 16, 1}, {33, 2064, 56, 0, 3},   {33, 4112, 24, 16, 3},
    {61, 144, 130, 0, 3},   {40, 1040, 72, 0, 0},   {9, 128, 72, 0, 0},     {37, 128, 72, 0, 0},
    {69, 128, 72, 0, 0},    {130, 128, 72, 0, 0},   {64, 1664, 192, 0, 0},  {64, 3200, 136, 16, 0}};

// Each way that the kernel with rings cuts a product on 132 multiprocessors: one tile a block of
// 16, 32 and 48 rows, of short rows and long; several tiles a block, of which some blocks have one
// more; warps without inputs, with one piece more than others, with more pieces than lanes, with
// more than they keep inputs for.
inline constexpr Fp8GemmCase kFp8GemmRingCases[] = {
    {1, 256, 2100, 0, 0},  {8, 1152, 72, 16, 0}, {2, 40960, 24, 0, 0},  {3, 2688, 4104, 16, 0},
    {8, 8832, 2120, 0, 0}, {5, 640, 6200, 0, 0}, {2, 4224, 4232, 0, 0}, {8, 256, 8500, 0, 0},
    {8, 128, 17000, 0, 0}, {7, 4224, 8480, 0, 4}};

// With a bias and a residual: each kernel, whole and cut tiles, an odd number of outputs.
inline constexpr Fp8GemmCase kFp8GemmAddendCases[] = {
    {3, 130, 9, 0, 0},     {8, 1024, 264, 0, 0},  {5, 128, 129, 16, 3},
    {50, 640, 130, 0, 2},  {61, 1552, 33, 0, 3},  {100, 1040, 64, 16, 0},
    {132, 144, 264, 8, 0}, {260, 272, 520, 0, 0}, {129, 256, 333, 0, 3}};

// Of DeepSeek-V3, the ones that FP8 products are compared at.
struct Fp8GemmServed {
  int64_t outputs, inputs;
};
inline constexpr Fp8GemmServed kFp8GemmServed[] = {{2112, 7168},  {24576, 1536}, {32768, 512},
                                                   {7168, 16384}, {4096, 7168},  {7168, 2048}};

}  // namespace millrace

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_CASES_H_
