// Shapes of Fp8GateUp, shared by its test and its benchmark.
#ifndef KERNELS_FP8_GATE_UP_FP8_GATE_UP_CASES_H_
#define KERNELS_FP8_GATE_UP_FP8_GATE_UP_CASES_H_

#include <cstdint>

namespace millrace {

// Paddings in elements, of rows of codes and of scales of x and of the result.
struct Fp8GateUpCase {
  int64_t tokens, inputs, outputs, padding, scale_padding;
};

// Few tokens and many; one and several tiles each way, rows short of them, K of one and several
// blocks of 128, the last short; what the tiles do not take: rows off 16 bytes, tokens whose scales
// are.
inline constexpr Fp8GateUpCase kFp8GateUpCases[] = {
    {0, 128, 128, 0, 0},   {3, 128, 128, 0, 1},   {8, 528, 256, 16, 0},
    {132, 144, 128, 0, 0}, {260, 272, 384, 0, 0}, {388, 400, 256, 16, 4},
    {131, 130, 128, 0, 0}, {129, 256, 128, 0, 0}, {132, 128, 256, 0, 0}};

// LLaMA-3.1-8B, whole and for two ranks; an expert of DeepSeek-V3.
struct Fp8GateUpServed {
  int64_t inputs, outputs;
};
inline constexpr Fp8GateUpServed kFp8GateUpServed[] = {{4096, 14336}, {4096, 7168}, {7168, 2048}};

}  // namespace millrace

#endif  // KERNELS_FP8_GATE_UP_FP8_GATE_UP_CASES_H_
