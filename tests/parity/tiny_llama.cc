#include "tests/parity/tiny_llama.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/core/check.h"
#include "kernels/core/dtype.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

double Silu(double x) { return x / (1 + std::exp(-x)); }

}  // namespace

TinyLlama::TinyLlama(const TinyLlamaShape& shape, uint32_t seed) : shape_(shape) {
  const int64_t hidden = shape.hidden;
  const int64_t q = int64_t{shape.heads} * shape.head_dim;
  const int64_t kv = int64_t{shape.kv_heads} * shape.head_dim;
  tensors_["model.embed_tokens.weight"].shape = {shape.vocab, hidden};
  tensors_["model.norm.weight"].shape = {hidden};
  if (!shape.tied) tensors_["lm_head.weight"].shape = {shape.vocab, hidden};
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    tensors_[layer + ".input_layernorm.weight"].shape = {hidden};
    tensors_[layer + ".post_attention_layernorm.weight"].shape = {hidden};
    AddProjection(layer + ".self_attn.q_proj", q, hidden, shape.attention_bias);
    AddProjection(layer + ".self_attn.k_proj", kv, hidden, shape.attention_bias);
    AddProjection(layer + ".self_attn.v_proj", kv, hidden, shape.attention_bias);
    AddProjection(layer + ".self_attn.o_proj", hidden, q, shape.attention_bias);
    AddProjection(layer + ".mlp.gate_proj", shape.intermediate, hidden, shape.mlp_bias);
    AddProjection(layer + ".mlp.up_proj", shape.intermediate, hidden, shape.mlp_bias);
    AddProjection(layer + ".mlp.down_proj", hidden, shape.intermediate, shape.mlp_bias);
  }
  std::mt19937 rng(seed);
  for (auto& [name, tensor] : tensors_) {
    int64_t size = 1;
    for (const int64_t d : tensor.shape) size *= d;
    const bool matrix = tensor.shape.size() == 2;
    const bool norm = name.find("norm") != std::string::npos;
    const float scale =
        norm ? 0.2f : (matrix ? 2.0f / std::sqrt(static_cast<float>(tensor.shape[1])) : 0.3f);
    std::normal_distribution<float> normal(norm ? 1.0f : 0.0f, scale);
    for (int64_t i = 0; i < size; ++i) {
      tensor.values.push_back(ToFloat(ToBFloat16(normal(rng))));
    }
  }
}

void TinyLlama::AddProjection(const std::string& prefix, int64_t outputs, int64_t inputs,
                              bool bias) {
  tensors_[prefix + ".weight"].shape = {outputs, inputs};
  if (bias) tensors_[prefix + ".bias"].shape = {outputs};
}

void TinyLlama::PoisonToken(int32_t token) {
  std::vector<float>& table = tensors_["model.embed_tokens.weight"].values;
  std::fill_n(table.begin() + int64_t{token} * shape_.hidden, shape_.hidden,
              std::numeric_limits<float>::quiet_NaN());
}

void TinyLlama::Add(const std::string& name, const std::vector<int64_t>& shape, float value) {
  size_t size = 1;
  for (const int64_t d : shape) size *= static_cast<size_t>(d);
  tensors_[name] = {shape, std::vector<float>(size, value)};
}

void TinyLlama::Remove(const std::string& name) { MR_CHECK(tensors_.erase(name) == 1); }

void TinyLlama::Write(const std::string& dir) const {
  Json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"vocab_size", shape_.vocab},
                 {"hidden_size", shape_.hidden},
                 {"intermediate_size", shape_.intermediate},
                 {"num_hidden_layers", shape_.layers},
                 {"num_attention_heads", shape_.heads},
                 {"num_key_value_heads", shape_.kv_heads},
                 {"head_dim", shape_.head_dim},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", shape_.max_position},
                 {"rms_norm_eps", shape_.eps},
                 {"rope_theta", shape_.rope_theta},
                 {"tie_word_embeddings", shape_.tied},
                 {"attention_bias", shape_.attention_bias},
                 {"mlp_bias", shape_.mlp_bias},
                 {"torch_dtype", "bfloat16"}};
  if (shape_.rope_factor != 1) {
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", shape_.rope_factor}};
  }
  WriteCheckpoint(dir, config.dump(), tensors_);
}

void TinyLlama::Keep(Rows& x) const {
  if (!round_kept) return;
  for (std::vector<double>& row : x) round_kept(row);
}

TinyLlama::Rows TinyLlama::Project(const std::string& prefix, const Rows& x) const {
  const WrittenTensor& w = tensors_.at(prefix + ".weight");
  const auto bias = tensors_.find(prefix + ".bias");
  const size_t outputs = static_cast<size_t>(w.shape[0]);
  const size_t inputs = static_cast<size_t>(w.shape[1]);
  const bool in_layer = prefix.find(".layers.") != std::string::npos;
  Rows y;
  for (std::vector<double> row : x) {
    if (round_inputs && in_layer) round_inputs(prefix, row);
    std::vector<double>& out = y.emplace_back(outputs);
    for (size_t o = 0; o < outputs; ++o) {
      out[o] = bias == tensors_.end() ? 0.0 : bias->second.values[o];
      for (size_t i = 0; i < inputs; ++i) {
        out[o] += row[i] * static_cast<double>(w.values[o * inputs + i]);
      }
    }
  }
  if (in_layer) Keep(y);
  return y;
}

TinyLlama::Rows TinyLlama::Norm(const std::string& name, const Rows& x) const {
  const std::vector<float>& weight = tensors_.at(name + ".weight").values;
  Rows y = x;
  for (std::vector<double>& row : y) {
    double squares = 0;
    for (const double v : row) squares += v * v;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(row.size()) + shape_.eps);
    for (size_t i = 0; i < row.size(); ++i) row[i] *= scale * static_cast<double>(weight[i]);
  }
  Keep(y);
  return y;
}

void TinyLlama::Rotate(std::vector<double>& heads, size_t position) const {
  const size_t d = static_cast<size_t>(shape_.head_dim);
  for (size_t head = 0; head < heads.size(); head += d) {
    for (size_t i = 0; i < d / 2; ++i) {
      const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(d);
      const double angle = static_cast<double>(position) / shape_.rope_factor *
                           std::pow(shape_.rope_theta, -exponent);
      const double a = heads[head + i];
      const double b = heads[head + i + d / 2];
      heads[head + i] = a * std::cos(angle) - b * std::sin(angle);
      heads[head + i + d / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

TinyLlama::Rows TinyLlama::Attend(const std::string& prefix, const Rows& x) const {
  Rows q = Project(prefix + ".q_proj", x);
  Rows k = Project(prefix + ".k_proj", x);
  Rows v = Project(prefix + ".v_proj", x);
  const size_t d = static_cast<size_t>(shape_.head_dim);
  const size_t group = static_cast<size_t>(shape_.heads / shape_.kv_heads);
  for (size_t t = 0; t < x.size(); ++t) {
    Rotate(q[t], t);
    Rotate(k[t], t);
  }
  Keep(q);
  Keep(k);
  Rows out;
  for (size_t t = 0; t < x.size(); ++t) {
    if (round_cache) {
      round_cache(prefix + ".k_proj", k[t]);
      round_cache(prefix + ".v_proj", v[t]);
    }
    std::vector<double>& row = out.emplace_back(q[t].size(), 0.0);
    for (size_t h = 0; h < q[t].size() / d; ++h) {
      const size_t kv = h / group * d;
      std::vector<double> scores(t + 1, 0.0);
      for (size_t s = 0; s <= t; ++s) {
        for (size_t i = 0; i < d; ++i) scores[s] += q[t][h * d + i] * k[s][kv + i];
        scores[s] /= std::sqrt(static_cast<double>(d));
      }
      const double largest = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (double& score : scores) total += score = std::exp(score - largest);
      for (size_t s = 0; s <= t; ++s) {
        for (size_t i = 0; i < d; ++i) row[h * d + i] += scores[s] / total * v[s][kv + i];
      }
    }
  }
  Keep(out);
  return Project(prefix + ".o_proj", out);
}

TinyLlama::Rows TinyLlama::Mlp(const std::string& prefix, const Rows& x) const {
  Rows gate = Project(prefix + ".gate_proj", x);
  const Rows up = Project(prefix + ".up_proj", x);
  for (size_t t = 0; t < gate.size(); ++t) {
    for (size_t i = 0; i < gate[t].size(); ++i) gate[t][i] = Silu(gate[t][i]) * up[t][i];
  }
  Keep(gate);
  return Project(prefix + ".down_proj", gate);
}

std::vector<std::vector<double>> TinyLlama::Logits(const std::vector<int32_t>& tokens) const {
  const std::vector<float>& table = tensors_.at("model.embed_tokens.weight").values;
  Rows x;
  for (const int32_t token : tokens) {
    const auto row = table.begin() + int64_t{token} * shape_.hidden;
    x.emplace_back(row, row + shape_.hidden);
  }
  const auto add = [&](const Rows& delta) {
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += delta[t][i];
    }
    Keep(x);
  };
  for (int32_t i = 0; i < shape_.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    add(Attend(layer + ".self_attn", Norm(layer + ".input_layernorm", x)));
    add(Mlp(layer + ".mlp", Norm(layer + ".post_attention_layernorm", x)));
  }
  return Project(shape_.tied ? "model.embed_tokens" : "lm_head", Norm("model.norm", x));
}

std::vector<int32_t> TinyLlama::Greedy(std::vector<int32_t> tokens, int32_t count,
                                       double* margin) const {
  std::vector<int32_t> output;
  for (int32_t i = 0; i < count; ++i) {
    std::vector<double> row = Logits(tokens).back();
    const auto best = std::max_element(row.begin(), row.end());
    output.push_back(static_cast<int32_t>(best - row.begin()));
    tokens.push_back(output.back());
    std::nth_element(row.begin(), row.begin() + 1, row.end(), std::greater<>());
    if (margin != nullptr) *margin = std::min(i == 0 ? row[0] - row[1] : *margin, row[0] - row[1]);
  }
  return output;
}

}  // namespace millrace
