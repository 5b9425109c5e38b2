// Which tensors a LLaMA-class checkpoint has.
#ifndef ENGINE_WEIGHTS_LLAMA_TENSORS_H_
#define ENGINE_WEIGHTS_LLAMA_TENSORS_H_

#include <vector>

#include "engine/config/model_config.h"
#include "engine/weights/tensor_info.h"

namespace millrace {

// Hugging Face names, with shapes and dtype by `config`; no data. In the order of the model.
std::vector<TensorInfo> LlamaTensors(const ModelConfig& config);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_LLAMA_TENSORS_H_
