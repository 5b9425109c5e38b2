// A small random LLaMA: its checkpoint folder, and its logits by the formulas in double precision.
#ifndef TESTS_PARITY_TINY_LLAMA_H_
#define TESTS_PARITY_TINY_LLAMA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/parity/checkpoint_writer.h"

namespace millrace {

struct TinyLlamaShape {
  int32_t vocab = 61;
  int32_t hidden = 48;
  int32_t intermediate = 70;
  int32_t layers = 2;
  int32_t heads = 6;
  int32_t kv_heads = 3;
  int32_t head_dim = 8;
  int32_t max_position = 256;
  bool tied = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  double rope_theta = 100;
  double rope_factor = 1;  // linear scaling
  double eps = 1e-3;       // large enough to matter
};

class TinyLlama final {
 public:
  TinyLlama(const TinyLlamaShape& shape, uint32_t seed);

  const TinyLlamaShape& shape() const { return shape_; }

  // Sets a row of the embedding to NaN: whoever reads this token is faulty from there on.
  void PoisonToken(int32_t token);

  // Changes what Write() writes: a tensor more, `value` throughout, or one less.
  void Add(const std::string& name, const std::vector<int64_t>& shape, float value = 0);
  void Remove(const std::string& name);

  // What Write() writes and Logits() computes with.
  void Set(const std::string& name, WrittenTensor tensor) { tensors_[name] = std::move(tensor); }
  const std::map<std::string, WrittenTensor>& tensors() const { return tensors_; }
  // Changes a token's row on its way, in Logits(); empty: nothing. `projection`: of which matrix,
  // "model.layers.0.self_attn.k_proj".
  using Rounding = std::function<void(const std::string& projection, std::vector<double>& row)>;
  Rounding round_inputs;  // what goes into the matrices of the layers
  Rounding round_cache;   // keys, rotated, and values
  // What else is kept from one op to the next, before the above: of norms, products in the layers,
  // rotated heads, attention, gated activations and sums.
  std::function<void(std::vector<double>& row)> round_kept;

  // Writes config.json and model.safetensors (bf16, which holds the weights exactly) into `dir`.
  void Write(const std::string& dir) const;

  // logits[position][token] of a sequence.
  std::vector<std::vector<double>> Logits(const std::vector<int32_t>& tokens) const;

  // `count` tokens after `prompt`, each the best by Logits(). Fills `margin`, if given, with the
  // smallest distance between best and second best.
  std::vector<int32_t> Greedy(std::vector<int32_t> prompt, int32_t count,
                              double* margin = nullptr) const;

 private:
  using Rows = std::vector<std::vector<double>>;

  void AddProjection(const std::string& prefix, int64_t outputs, int64_t inputs, bool bias);
  void Keep(Rows& x) const;
  Rows Project(const std::string& prefix, const Rows& x) const;
  Rows Norm(const std::string& name, const Rows& x) const;
  Rows Attend(const std::string& prefix, const Rows& x) const;
  Rows Mlp(const std::string& prefix, const Rows& x) const;
  void Rotate(std::vector<double>& heads, size_t position) const;

  TinyLlamaShape shape_;
  std::map<std::string, WrittenTensor> tensors_;
};

}  // namespace millrace

#endif  // TESTS_PARITY_TINY_LLAMA_H_
