#include "engine/weights/llama_tensors.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

FileDType StoredAs(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return FileDType::kF32;
    case DType::kF16:
      return FileDType::kF16;
    default:
      return FileDType::kBF16;
  }
}

// A matrix of FP8 with its scales.
void AddFp8(const std::string& matrix, const std::vector<int64_t>& shape, const Fp8Scheme& scheme,
            std::vector<TensorInfo>& tensors) {
  constexpr int64_t kBlock = 128;
  std::vector<int64_t> scale;
  if (scheme.weight == Fp8WeightScale::kChannel) scale = {shape[0], 1};
  if (scheme.weight == Fp8WeightScale::kBlock) {
    scale = {(shape[0] + kBlock - 1) / kBlock, (shape[1] + kBlock - 1) / kBlock};
  }
  tensors.push_back({.name = matrix + ".weight", .dtype = FileDType::kF8E4M3, .shape = shape});
  tensors.push_back({.name = absl::StrCat(matrix, ".", scheme.scale_name),
                     .dtype = FileDType::kF32,
                     .shape = std::move(scale)});
  if (scheme.static_input) {
    tensors.push_back({.name = matrix + ".input_scale", .dtype = FileDType::kF32});
  }
}

}  // namespace

std::vector<TensorInfo> LlamaTensors(const ModelConfig& config) {
  const FileDType dtype = StoredAs(config.dtype);
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t q = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
  std::vector<TensorInfo> tensors;
  const auto add = [&](std::string name, std::vector<int64_t> shape) {
    tensors.push_back({.name = std::move(name), .dtype = dtype, .shape = std::move(shape)});
  };
  add("model.embed_tokens.weight", {config.vocab_size, hidden});
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    const auto linear = [&](const char* name, int64_t out, int64_t in, bool bias) {
      const std::string matrix = prefix + name;
      const std::optional<Fp8Scheme> fp8 =
          config.fp8.has_value() ? config.fp8->SchemeOf(matrix) : std::nullopt;
      if (fp8.has_value()) {
        AddFp8(matrix, {out, in}, *fp8, tensors);
      } else {
        add(matrix + ".weight", {out, in});
      }
      if (bias) add(absl::StrCat(prefix, name, ".bias"), {out});
    };
    add(prefix + "input_layernorm.weight", {hidden});
    linear("self_attn.q_proj", q, hidden, config.attention_bias);
    linear("self_attn.k_proj", kv, hidden, config.attention_bias);
    linear("self_attn.v_proj", kv, hidden, config.attention_bias);
    linear("self_attn.o_proj", hidden, q, config.attention_bias);
    add(prefix + "post_attention_layernorm.weight", {hidden});
    linear("mlp.gate_proj", inner, hidden, config.mlp_bias);
    linear("mlp.up_proj", inner, hidden, config.mlp_bias);
    linear("mlp.down_proj", hidden, inner, config.mlp_bias);
  }
  add("model.norm.weight", {hidden});
  if (!config.tie_embeddings) add("lm_head.weight", {config.vocab_size, hidden});
  return tensors;
}

}  // namespace millrace
