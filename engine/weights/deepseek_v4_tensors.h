// Which tensors a DeepSeek-V4 checkpoint has.
#ifndef ENGINE_WEIGHTS_DEEPSEEK_V4_TENSORS_H_
#define ENGINE_WEIGHTS_DEEPSEEK_V4_TENSORS_H_

#include <string_view>
#include <vector>

#include "engine/config/deepseek_v4_config.h"
#include "engine/weights/tensor_info.h"

namespace millrace {

// Released names, with shapes and types as `config` says they are stored; no data. In the order of
// the model, without the layers of multi-token prediction.
std::vector<TensorInfo> DeepSeekV4Tensors(const DeepSeekV4Config& config);

// Whether a tensor belongs to the layers of multi-token prediction, which this engine does not run.
bool IsDeepSeekV4Mtp(std::string_view name);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_DEEPSEEK_V4_TENSORS_H_
