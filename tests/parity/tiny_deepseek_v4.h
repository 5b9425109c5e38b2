// A small random DeepSeek-V4: its checkpoint folder, and its logits by the formulas in double
// precision.
#ifndef TESTS_PARITY_TINY_DEEPSEEK_V4_H_
#define TESTS_PARITY_TINY_DEEPSEEK_V4_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/parity/checkpoint_writer.h"

namespace millrace {

struct TinyDeepSeekV4Shape {
  int32_t vocab = 61;
  int32_t hidden = 40;
  int32_t heads = 4;
  int32_t head_dim = 32;
  int32_t rope_dim = 8;
  int32_t q_rank = 24;
  int32_t o_groups = 2;
  int32_t o_rank = 12;
  int32_t window = 16;
  int32_t index_heads = 5;
  int32_t index_dim = 32;
  int32_t index_topk = 4;
  int32_t width = 32;
  int32_t experts = 6;
  int32_t chosen = 2;
  int32_t hash_layers = 1;
  int32_t streams = 3;
  int32_t sinkhorn_iters = 3;
  std::vector<int32_t> ratios = {0, 4, 128, 4};  // by layer
  double routed_scaling = 1.5;
  double swiglu_limit = 1.25;  // low enough to matter, like the next two
  double hc_eps = 0.02;
  double eps = 1e-3;
  double rope_theta = 100;
  double compress_theta = 1000;
  double yarn_factor = 4;
  int32_t yarn_context = 64;
  int32_t max_position = 1024;
};

class TinyDeepSeekV4 final {
 public:
  TinyDeepSeekV4(const TinyDeepSeekV4Shape& shape, uint32_t seed);

  const TinyDeepSeekV4Shape& shape() const { return shape_; }

  // Change what Write() writes, not what Logits() computes.
  void Add(const std::string& name, const WrittenTensor& tensor) { tensors_[name] = tensor; }
  void Remove(const std::string& name);

  // Writes config.json, in the released spelling, and model.safetensors into `dir`.
  void Write(const std::string& dir) const;

  // logits[position][token] of a sequence.
  std::vector<std::vector<double>> Logits(const std::vector<int32_t>& tokens) const;

  // The smallest distance, over all choices of experts and entries that Logits() has made so far,
  // between what was taken and what was not: where it is no larger than rounding errors, another
  // choice is as right.
  double smallest_margin() const { return smallest_margin_; }

  // `count` tokens after `prompt`, each the best by Logits(). Fills `margin`, if given, with the
  // smallest distance between best and second best.
  std::vector<int32_t> Greedy(std::vector<int32_t> prompt, int32_t count,
                              double* margin = nullptr) const;

 private:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;
  struct Mix {
    Rows x;
    Rows post;
    std::vector<Rows> comb;  // [token][j][k]
  };
  // A compressor's place in the checkpoint, and what it does.
  struct Compressor {
    std::string prefix;
    size_t ratio = 0;
    size_t dim = 0;
  };

  void AddTensor(const std::string& name, const std::vector<int64_t>& shape,
                 WrittenTensor::Type type = WrittenTensor::Type::kBF16);
  void AddLayer(int32_t index);
  void AddCompressor(const std::string& prefix, int32_t ratio, int32_t dim);
  void Fill(uint32_t seed);

  const std::vector<float>& Values(const std::string& name) const {
    return tensors_.at(name).values;
  }
  Rows Project(const std::string& name, const Rows& x) const;
  Rows Norm(const std::string& name, const Rows& x) const;
  Row Frequencies(bool compressed) const;
  // The last channels of a row of `head_dim` wide heads, as pairs of neighbours.
  void Rotate(Row& row, size_t head_dim, double position, const Row& frequencies) const;

  Mix MixIn(const std::string& prefix, const std::vector<Rows>& streams) const;
  void MixOut(const Mix& mix, const Rows& out, std::vector<Rows>& streams) const;
  Rows Collapse(const std::vector<Rows>& streams) const;

  Rows Compress(const Compressor& compressor, const Rows& x, const Row& frequencies) const;
  // By token: the entries that it attends to.
  std::vector<std::vector<size_t>> Select(const std::string& prefix, const Rows& x, const Rows& qr,
                                          const Row& frequencies) const;
  Rows Attend(int32_t layer, const Rows& x) const;
  Row AttendHead(const Rows& keys, const double* q, double sink) const;
  Rows ProjectGroups(const std::string& prefix, const Rows& heads) const;
  // By token: expert and weight.
  std::vector<std::vector<std::pair<size_t, double>>> Route(
      int32_t layer, const Rows& x, const std::vector<int32_t>& tokens) const;
  Row Expert(const std::string& prefix, const Row& x) const;
  Rows Mixture(int32_t layer, const Rows& x, const std::vector<int32_t>& tokens) const;
  void NoteMargin(const Row& scores, size_t taken) const;

  TinyDeepSeekV4Shape shape_;
  std::map<std::string, WrittenTensor> tensors_;
  mutable double smallest_margin_ = 1e9;
};

}  // namespace millrace

#endif  // TESTS_PARITY_TINY_DEEPSEEK_V4_H_
