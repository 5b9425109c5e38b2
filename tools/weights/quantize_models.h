// Tiny checkpoints for the tests of quantisation.
#ifndef TOOLS_WEIGHTS_QUANTIZE_MODELS_H_
#define TOOLS_WEIGHTS_QUANTIZE_MODELS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/weights/tensor_info.h"
#include "nlohmann/json.hpp"

namespace millrace {

// A checkpoint in the making: random matrices that bf16 holds exactly, F32 vectors.
struct QuantizeModel {
  nlohmann::json config = {};
  std::map<std::string, std::vector<int64_t>> shapes = {};
  std::map<std::string, std::vector<float>> values = {};

  // Adds a tensor or replaces it. Its first block is zeros.
  void Add(const std::string& name, const std::vector<int64_t>& shape);

  // Writes a folder of this name with the checkpoint, a tokenizer, a subfolder and old weights
  // besides, and returns its path.
  std::string Write(const std::string& name, FileDType matrix_dtype = FileDType::kBF16) const;
};

// One layer; names, and shapes that end in partial blocks where the formats allow them.
QuantizeModel TinyLlamaToQuantize();
// One layer and a drafter.
QuantizeModel TinyDeepseekToQuantize();

}  // namespace millrace

#endif  // TOOLS_WEIGHTS_QUANTIZE_MODELS_H_
