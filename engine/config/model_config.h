// What a model is, as its folder's config.json says. Plain values, already checked.
#ifndef ENGINE_CONFIG_MODEL_CONFIG_H_
#define ENGINE_CONFIG_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/deepseek_v4_config.h"
#include "engine/config/fp8_config.h"
#include "kernels/core/dtype.h"

namespace millrace {

// Which Forward list runs the model: runtime chooses by this and by nothing else.
enum class ModelFamily { kLlama, kDeepSeekV4 };

// Not RopeType: that is the kernel's (kernels/rope).
enum class RopeScaling {
  kDefault,  // angle = position * theta^(-2i/d)
  kLinear,   // the default's frequencies divided by `factor`
  kLlama3,   // low frequencies divided by `factor`, high ones kept, a ramp between
};

struct RopeConfig {
  RopeScaling type = RopeScaling::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                // kLinear, kLlama3
  double low_freq_factor = 1.0;       // kLlama3
  double high_freq_factor = 4.0;      // kLlama3; above low_freq_factor
  int64_t original_max_position = 0;  // kLlama3, tokens
  // What the frequencies are rounded to (kF32 or kBF16); angles are f32 all the same. bf16 is what
  // a model has that was cast to bf16 as a whole, buffers included. Our own key of config.json.
  DType frequency_dtype = DType::kF32;
};

// A decoder-only model. Guaranteed by the parser: sizes are positive and within its limits,
// num_heads is a multiple of num_kv_heads, head_dim is even, every token id is below vocab_size.
struct ModelConfig {
  // Of every family.
  ModelFamily family = ModelFamily::kLlama;
  std::string model_type;
  std::vector<std::string> architectures;
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t num_layers = 0;
  int32_t max_position = 0;  // tokens, prompt and answer together
  std::vector<int32_t> eos_token_ids;
  int32_t bos_token_id = -1;   // -1: none
  int32_t pad_token_id = -1;   // -1: none
  DType dtype = DType::kBF16;  // the checkpoint's own

  // Of kLlama; the others leave it as it is.
  int32_t intermediate_size = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  double rms_norm_eps = 0;
  RopeConfig rope;
  bool tie_embeddings = false;   // lm_head is embed_tokens
  bool attention_bias = false;   // on q, k, v and o
  bool mlp_bias = false;         // on gate, up and down
  std::optional<Fp8Config> fp8;  // which matrices of the layers are FP8; none: none

  // Of kDeepSeekV4, which has it always.
  std::optional<DeepSeekV4Config> deepseek_v4;
};

// Tokens of a cache page where nobody asks for another size.
inline int32_t DefaultPageTokens(const ModelConfig& config) {
  // DeepSeek-V4 stores one row for 128 tokens.
  return config.family == ModelFamily::kDeepSeekV4 ? 128 : 16;
}

// Sampling defaults of a model's authors, from generation_config.json. Unset: the file is silent.
struct GenerationDefaults {
  std::vector<int32_t> eos_token_ids;
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int32_t> top_k;
  std::optional<double> repetition_penalty;
};

// What tokenizer_config.json says beside tokenizer.json. Empty: the file is silent.
struct TokenizerSettings {
  std::string bos_token;
  std::string eos_token;
  std::string chat_template;  // never evaluated: models are recognised by it
};

}  // namespace millrace

#endif  // ENGINE_CONFIG_MODEL_CONFIG_H_
