#include "tests/parity/tiny_deepseek_v4.h"

#include <cmath>
#include <random>

#include "kernels/core/check.h"
#include "kernels/core/dtype.h"
#include "nlohmann/json.hpp"

namespace millrace {

using Json = nlohmann::json;
using Type = WrittenTensor::Type;

TinyDeepSeekV4::TinyDeepSeekV4(const TinyDeepSeekV4Shape& shape, uint32_t seed) : shape_(shape) {
  AddTensor("embed.weight", {shape.vocab, shape.hidden});
  AddTensor("head.weight", {shape.vocab, shape.hidden});
  AddTensor("norm.weight", {shape.hidden});
  AddTensor("hc_head_fn", {shape.streams, shape.streams * shape.hidden}, Type::kF32);
  AddTensor("hc_head_base", {shape.streams}, Type::kF32);
  AddTensor("hc_head_scale", {1}, Type::kF32);
  for (int32_t i = 0; i < static_cast<int32_t>(shape.ratios.size()); ++i) AddLayer(i);
  Fill(seed);
}

void TinyDeepSeekV4::AddTensor(const std::string& name, const std::vector<int64_t>& shape,
                               Type type) {
  tensors_[name].shape = shape;
  tensors_[name].type = type;
}

void TinyDeepSeekV4::AddCompressor(const std::string& prefix, int32_t ratio, int32_t dim) {
  const int64_t projected = ratio == 4 ? 2 * dim : dim;
  AddTensor(prefix + ".wkv.weight", {projected, shape_.hidden});
  AddTensor(prefix + ".wgate.weight", {projected, shape_.hidden});
  AddTensor(prefix + ".ape", {ratio, projected}, Type::kF32);
  AddTensor(prefix + ".norm.weight", {dim});
}

void TinyDeepSeekV4::AddLayer(int32_t index) {
  const TinyDeepSeekV4Shape& s = shape_;
  const std::string layer = "layers." + std::to_string(index);
  const int64_t mixes = (2 + s.streams) * s.streams;
  for (const std::string name : {"attn", "ffn"}) {
    AddTensor(layer + "." + name + "_norm.weight", {s.hidden});
    AddTensor(layer + ".hc_" + name + "_fn", {mixes, s.streams * s.hidden}, Type::kF32);
    AddTensor(layer + ".hc_" + name + "_base", {mixes}, Type::kF32);
    AddTensor(layer + ".hc_" + name + "_scale", {3}, Type::kF32);
  }
  const std::string attn = layer + ".attn";
  AddTensor(attn + ".wq_a.weight", {s.q_rank, s.hidden});
  AddTensor(attn + ".q_norm.weight", {s.q_rank});
  AddTensor(attn + ".wq_b.weight", {s.heads * s.head_dim, s.q_rank});
  AddTensor(attn + ".wkv.weight", {s.head_dim, s.hidden});
  AddTensor(attn + ".kv_norm.weight", {s.head_dim});
  AddTensor(attn + ".attn_sink", {s.heads}, Type::kF32);
  AddTensor(attn + ".wo_a.weight", {s.o_groups * s.o_rank, s.heads / s.o_groups * s.head_dim});
  AddTensor(attn + ".wo_b.weight", {s.hidden, s.o_groups * s.o_rank});
  const int32_t ratio = s.ratios[static_cast<size_t>(index)];
  if (ratio > 0) AddCompressor(attn + ".compressor", ratio, s.head_dim);
  if (ratio == 4) {
    AddTensor(attn + ".indexer.wq_b.weight", {s.index_heads * s.index_dim, s.q_rank});
    AddTensor(attn + ".indexer.weights_proj.weight", {s.index_heads, s.hidden});
    AddCompressor(attn + ".indexer.compressor", ratio, s.index_dim);
  }
  AddTensor(layer + ".ffn.gate.weight", {s.experts, s.hidden});
  if (index < s.hash_layers) {
    AddTensor(layer + ".ffn.gate.tid2eid", {s.vocab, s.chosen}, Type::kI64);
  } else {
    AddTensor(layer + ".ffn.gate.bias", {s.experts}, Type::kF32);
  }
  std::vector<std::string> experts = {layer + ".ffn.shared_experts"};
  for (int32_t e = 0; e < s.experts; ++e) {
    experts.push_back(layer + ".ffn.experts." + std::to_string(e));
  }
  for (const std::string& expert : experts) {
    AddTensor(expert + ".w1.weight", {s.width, s.hidden});
    AddTensor(expert + ".w3.weight", {s.width, s.hidden});
    AddTensor(expert + ".w2.weight", {s.hidden, s.width});
  }
}

void TinyDeepSeekV4::Fill(uint32_t seed) {
  std::mt19937 rng(seed);
  for (auto& [name, tensor] : tensors_) {
    int64_t size = 1;
    for (const int64_t d : tensor.shape) size *= d;
    if (tensor.type == Type::kI64) {  // distinct experts for each id
      for (int64_t id = 0; id < tensor.shape[0]; ++id) {
        const auto first = static_cast<int64_t>(rng() % static_cast<uint32_t>(shape_.experts));
        for (int64_t k = 0; k < tensor.shape[1]; ++k) {
          tensor.values.push_back(static_cast<float>((first + 2 * k + id % 2) % shape_.experts));
        }
      }
      continue;
    }
    const bool matrix = tensor.shape.size() == 2 && name.find(".ape") == std::string::npos;
    const bool norm = name.find("norm") != std::string::npos;
    const double spread = norm ? 0.2 : matrix ? 1.5 / std::sqrt(tensor.shape[1]) : 0.5;
    std::normal_distribution<double> normal(norm ? 1.0 : 0.0, spread);
    for (int64_t i = 0; i < size; ++i) {
      const auto value = static_cast<float>(normal(rng));
      tensor.values.push_back(tensor.type == Type::kF32 ? value : ToFloat(ToBFloat16(value)));
    }
  }
}

void TinyDeepSeekV4::Remove(const std::string& name) { MR_CHECK(tensors_.erase(name) == 1); }

void TinyDeepSeekV4::Write(const std::string& dir) const {
  const TinyDeepSeekV4Shape& s = shape_;
  std::vector<int32_t> ratios = s.ratios;
  ratios.push_back(0);
  const Json config = {{"architectures", {"DeepseekV4ForCausalLM"}},
                       {"model_type", "deepseek_v4"},
                       {"vocab_size", s.vocab},
                       {"hidden_size", s.hidden},
                       {"num_hidden_layers", s.ratios.size()},
                       {"num_attention_heads", s.heads},
                       {"num_key_value_heads", 1},
                       {"head_dim", s.head_dim},
                       {"qk_rope_head_dim", s.rope_dim},
                       {"q_lora_rank", s.q_rank},
                       {"o_groups", s.o_groups},
                       {"o_lora_rank", s.o_rank},
                       {"sliding_window", s.window},
                       {"max_position_embeddings", s.max_position},
                       {"rms_norm_eps", s.eps},
                       {"index_n_heads", s.index_heads},
                       {"index_head_dim", s.index_dim},
                       {"index_topk", s.index_topk},
                       {"moe_intermediate_size", s.width},
                       {"n_routed_experts", s.experts},
                       {"n_shared_experts", 1},
                       {"num_experts_per_tok", s.chosen},
                       {"num_hash_layers", s.hash_layers},
                       {"routed_scaling_factor", s.routed_scaling},
                       {"swiglu_limit", s.swiglu_limit},
                       {"hc_mult", s.streams},
                       {"hc_sinkhorn_iters", s.sinkhorn_iters},
                       {"hc_eps", s.hc_eps},
                       {"rope_theta", s.rope_theta},
                       {"compress_rope_theta", s.compress_theta},
                       {"rope_scaling",
                        {{"type", "yarn"},
                         {"factor", s.yarn_factor},
                         {"original_max_position_embeddings", s.yarn_context},
                         {"beta_fast", 4},
                         {"beta_slow", 1}}},
                       {"compress_ratios", ratios},
                       {"num_nextn_predict_layers", 1},
                       {"torch_dtype", "bfloat16"}};
  WriteCheckpoint(dir, config.dump(), tensors_);
}

std::vector<int32_t> TinyDeepSeekV4::Greedy(std::vector<int32_t> prompt, int32_t count,
                                            double* margin) const {
  std::vector<int32_t> tokens;
  if (margin != nullptr) *margin = 1e9;
  for (int32_t i = 0; i < count; ++i) {
    const std::vector<double> logits = Logits(prompt).back();
    size_t best = 0;
    for (size_t v = 1; v < logits.size(); ++v) {
      if (logits[v] > logits[best]) best = v;
    }
    for (size_t v = 0; margin != nullptr && v < logits.size(); ++v) {
      if (v != best) *margin = std::min(*margin, logits[best] - logits[v]);
    }
    tokens.push_back(static_cast<int32_t>(best));
    prompt.push_back(tokens.back());
  }
  return tokens;
}

}  // namespace millrace
