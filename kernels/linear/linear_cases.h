// Shapes of Linear, shared by its test and its benchmark.
#ifndef KERNELS_LINEAR_LINEAR_CASES_H_
#define KERNELS_LINEAR_LINEAR_CASES_H_

#include <cstdint>

namespace millrace {

struct LinearCase {
  int64_t tokens, inputs, outputs, row_padding;
};

// Each side of every edge: vectors of 4 to 16 lanes, tiles of 4 outputs and 2 to 6 tokens, blocks
// of 8 outputs, the switch of kernels after 32 tokens, more than one block of tokens and of inputs,
// and calls that are cut at 512 tokens, with a last part that fills a block.
inline constexpr LinearCase kLinearCases[] = {
    {0, 8, 8, 0},     {1, 0, 3, 0},     {40, 0, 3, 0},   {1, 1, 1, 0},
    {1, 7, 5, 1},     {2, 16, 4, 0},    {3, 31, 9, 3},   {4, 33, 13, 0},
    {5, 64, 17, 1},   {7, 577, 11, 2},  {32, 97, 10, 0}, {33, 97, 10, 0},
    {37, 1300, 9, 5}, {70, 101, 23, 0}, {131, 67, 7, 1}, {574, 1300, 9, 0}};

// All bf16, for the GPU's paths: inputs short of a piece of 64 and past it, outputs short of a tile
// of 16, one and two tiles of 8 tokens, tiles of outputs below and above two and four a
// multiprocessor, a grid that does not start early, and what goes to cuBLASLt.
inline constexpr LinearCase kLinearBf16Cases[] = {
    {1, 8, 3, 0},       {2, 64, 16, 8},     {7, 72, 33, 0},    {8, 576, 50, 16}, {9, 4096, 40, 0},
    {16, 1032, 257, 8}, {3, 128, 6144, 0},  {12, 96, 6001, 0}, {4, 64, 9003, 0}, {15, 64, 9003, 8},
    {17, 576, 64, 8},   {70, 1032, 136, 0}, {1, 0, 5, 0},      {2, 64, 65541, 0}};

// SmolLM2-135M: q, k and v together, o, gate and up together, down, and (a part of) the head.
inline constexpr LinearCase kLinearServingCases[] = {
    {1, 576, 960, 0}, {1, 576, 576, 0}, {1, 576, 3072, 0}, {1, 1536, 576, 0}, {64, 576, 960, 0}};

}  // namespace millrace

#endif  // KERNELS_LINEAR_LINEAR_CASES_H_
