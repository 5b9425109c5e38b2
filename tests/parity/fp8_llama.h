// A small LLaMA that our own tool has made FP8, and what its numbers stand for.
#ifndef TESTS_PARITY_FP8_LLAMA_H_
#define TESTS_PARITY_FP8_LLAMA_H_

#include <string>
#include <vector>

#include "tests/parity/engine_runs.h"
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
  // The model whose weights are what the codes stand for, and which rounds activations as engines
  // are to do in serving numerics.
  TinyLlama twin;
};

// Folders' names begin with `name`.
Fp8Llama MakeFp8Llama(const TinyLlamaShape& shape, QuantTarget target, const std::string& name);

// The twin of any folder with this shape, without rounding: codes times scales.
TinyLlama Dequantised(const TinyLlamaShape& shape, const std::string& dir);

// Root of the mean square.
double Rms(const std::vector<std::vector<double>>& rows);
std::vector<std::vector<double>> Difference(const std::vector<std::vector<double>>& a,
                                            const std::vector<std::vector<float>>& b);

}  // namespace millrace

#endif  // TESTS_PARITY_FP8_LLAMA_H_
