// How near a GPU, which keeps bf16 from one op to the next, comes to formulas in double precision.
#ifndef TESTS_PARITY_NEARNESS_H_
#define TESTS_PARITY_NEARNESS_H_

#include <cstdint>
#include <functional>
#include <ostream>
#include <vector>

#include "engine/runtime/engine.h"
#include "tests/parity/tiny_llama.h"

namespace millrace {

// Roots of mean squares over all logits of some prompts.
struct Nearness {
  double error = 0;   // what is measured, from the formulas
  double alike = 0;   // what is measured, from the formulas where they keep bf16 too
  double noise = 0;   // those, from the formulas
  double spread = 0;  // of the formulas' logits
};

// bf16 puts some elements on the other side of a rounding to FP8, a sixteenth to an eighth of them
// away: the formulas, keeping bf16, suffer as many. An engine's error is another draw of that
// noise, and up to 1.3 times as large where it rounds more often (without FP8 transformers' is).
// What is above the bound has nearness_test: a cache that is not FP8, scales of another head or of
// another block of the first layer. An error in the last layer's attention need not be.
inline constexpr double kNoises = 1.6;

// The logits of each position of a prompt.
using LogitsOfPrompt = std::function<std::vector<std::vector<float>>(const std::vector<int32_t>&)>;

// `lengths`: of prompts. `model` may round inputs and cache. Zeros, and a failed test, where logits
// are missing.
Nearness MeasureNearness(const TinyLlama& model, const LogitsOfPrompt& measured,
                         const std::vector<int32_t>& lengths);

// That a GPU's engine is no farther from `model` than the bound; prints what is measured.
void ExpectNear(const TinyLlama& model, Engine& engine, const std::vector<int32_t>& lengths);

std::ostream& operator<<(std::ostream& out, const Nearness& nearness);

}  // namespace millrace

#endif  // TESTS_PARITY_NEARNESS_H_
