// A small LLaMA that our own tool has made FP8, and what its numbers stand for.
#ifndef TESTS_PARITY_FP8_LLAMA_H_
#define TESTS_PARITY_FP8_LLAMA_H_

#include <cstdint>
#include <string>

#include "tests/parity/tiny_llama.h"
#include "tools/weights/quantize_run.h"

namespace millrace {

// Letters, for folders and tests.
std::string Fp8FormatName(QuantTarget target);

// The largest activation that the input_scale of these folders lets through.
inline constexpr float kFp8ActivationAmax = 20;

struct Fp8Llama {
  std::string plain;  // folder of the model before
  std::string dir;    // and after quantisation
  // The model whose weights are what the codes stand for, and which rounds activations as an engine
  // of one rank is to do in serving numerics.
  TinyLlama twin;
};

// A model whose matrices are 2^-5 to 2 times as large from one patch of 64 x 64 to the next, all of
// them exact in bf16: the scale of another block, row or matrix shows.
TinyLlama PatchyLlama(const TinyLlamaShape& shape, uint32_t seed);

// A folder, whose name begins with `name`, of what our tool makes of the folder `plain`.
std::string Requantised(const std::string& plain, QuantTarget target, const std::string& name,
                        float activation_amax);

// Of a PatchyLlama. Folders' names begin with `name`.
Fp8Llama MakeFp8Llama(const TinyLlamaShape& shape, QuantTarget target, const std::string& name);

// The twin of any folder with this shape, without rounding: codes times scales.
TinyLlama Dequantised(const TinyLlamaShape& shape, const std::string& dir);

// Makes `twin` round activations as engines of `ranks` ranks do, where each has a part of the
// inputs of o_proj and down_proj and scales that by itself.
void RoundAsRanks(QuantTarget target, int32_t ranks, TinyLlama& twin);

}  // namespace millrace

#endif  // TESTS_PARITY_FP8_LLAMA_H_
