#include "engine/weights/deepseek_v4_tensors.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

constexpr int64_t kTile = 128;
constexpr int64_t kMxFp4Block = 32;
constexpr int64_t kNvFp4Block = 16;

int64_t Tiles(int64_t n) { return (n + kTile - 1) / kTile; }

class Lister final {
 public:
  explicit Lister(const DeepSeekV4Config& config) : c_(config) {}

  std::vector<TensorInfo> List() {
    Plain("embed.weight", {c_.vocab_size, c_.hidden_size});
    for (size_t i = 0; i < c_.layers.size(); ++i) Layer(i);
    Connection("hc_head", c_.hc_streams, 1);
    Plain("norm.weight", {c_.hidden_size});
    Plain("head.weight", {c_.vocab_size, c_.hidden_size});
    return std::move(tensors_);
  }

 private:
  void Add(std::string name, FileDType dtype, std::vector<int64_t> shape) {
    tensors_.push_back({.name = std::move(name), .dtype = dtype, .shape = std::move(shape)});
  }
  void Plain(std::string name, std::vector<int64_t> shape) {
    const bool wide = c_.dtype == DType::kF32;
    Add(std::move(name), wide ? FileDType::kF32 : FileDType::kBF16, std::move(shape));
  }

  // A matrix of `rows` outputs and `cols` inputs.
  void Matrix(const std::string& prefix, DeepSeekV4Storage storage, int64_t rows, int64_t cols) {
    switch (storage) {
      case DeepSeekV4Storage::kPlain:
        return Plain(prefix + ".weight", {rows, cols});
      case DeepSeekV4Storage::kFp8Block: {
        const bool wide = c_.quantization.block_scale == DeepSeekV4BlockScale::kF32;
        Add(prefix + ".weight", FileDType::kF8E4M3, {rows, cols});
        return Add(prefix + ".scale", wide ? FileDType::kF32 : FileDType::kF8E8M0,
                   {Tiles(rows), Tiles(cols)});
      }
      case DeepSeekV4Storage::kMxFp4:
        Add(prefix + ".weight", FileDType::kI8, {rows, cols / 2});
        return Add(prefix + ".scale", FileDType::kF8E8M0, {rows, cols / kMxFp4Block});
      case DeepSeekV4Storage::kNvFp4: {
        const bool divide = c_.quantization.nvfp4_keys == DeepSeekV4NvFp4Keys::kCompressedTensors;
        Add(prefix + (divide ? ".weight_packed" : ".weight"), FileDType::kU8, {rows, cols / 2});
        Add(prefix + ".weight_scale", FileDType::kF8E4M3, {rows, cols / kNvFp4Block});
        return Add(prefix + (divide ? ".weight_global_scale" : ".weight_scale_2"), FileDType::kF32,
                   divide ? std::vector<int64_t>{1} : std::vector<int64_t>{});
      }
    }
  }
  void Dense(const std::string& prefix, int64_t rows, int64_t cols) {
    Matrix(prefix, c_.quantization.dense, rows, cols);
  }

  void Connection(const std::string& prefix, int64_t rows, int64_t scales) {
    Add(prefix + "_fn", FileDType::kF32, {rows, int64_t{c_.hc_streams} * c_.hidden_size});
    Add(prefix + "_base", FileDType::kF32, {rows});
    Add(prefix + "_scale", FileDType::kF32, {scales});
  }

  // `width`: of an entry.
  void Compressor(const std::string& prefix, int64_t ratio, int64_t width) {
    const int64_t projected = ratio == 4 ? 2 * width : width;  // for two windows, which overlap
    Add(prefix + ".ape", FileDType::kF32, {ratio, projected});
    Plain(prefix + ".wkv.weight", {projected, c_.hidden_size});
    Plain(prefix + ".wgate.weight", {projected, c_.hidden_size});
    Plain(prefix + ".norm.weight", {width});
  }

  void Attention(const std::string& prefix, DeepSeekV4Attention kind) {
    const int64_t q = int64_t{c_.num_heads} * c_.head_dim;
    const int64_t o = int64_t{c_.o_groups} * c_.o_lora_rank;
    Add(prefix + ".attn_sink", FileDType::kF32, {c_.num_heads});
    Dense(prefix + ".wq_a", c_.q_lora_rank, c_.hidden_size);
    Plain(prefix + ".q_norm.weight", {c_.q_lora_rank});
    Dense(prefix + ".wq_b", q, c_.q_lora_rank);
    Dense(prefix + ".wkv", c_.head_dim, c_.hidden_size);
    Plain(prefix + ".kv_norm.weight", {c_.head_dim});
    Dense(prefix + ".wo_a", o, q / c_.o_groups);
    Dense(prefix + ".wo_b", c_.hidden_size, o);
    const int32_t ratio = CompressRatio(kind);
    if (ratio == 0) return;
    Compressor(prefix + ".compressor", ratio, c_.head_dim);
    if (kind != DeepSeekV4Attention::kCsa) return;
    const std::string indexer = prefix + ".indexer";
    Dense(indexer + ".wq_b", int64_t{c_.index_heads} * c_.index_head_dim, c_.q_lora_rank);
    Plain(indexer + ".weights_proj.weight", {c_.index_heads, c_.hidden_size});
    Compressor(indexer + ".compressor", ratio, c_.index_head_dim);
  }

  void Mlp(const std::string& prefix, DeepSeekV4Storage storage) {
    Matrix(prefix + ".w1", storage, c_.expert_width, c_.hidden_size);
    Matrix(prefix + ".w2", storage, c_.hidden_size, c_.expert_width);
    Matrix(prefix + ".w3", storage, c_.expert_width, c_.hidden_size);
  }

  void Layer(size_t index) {
    const DeepSeekV4Layer& layer = c_.layers[index];
    const std::string prefix = absl::StrCat("layers.", index);
    const int64_t mixes = int64_t{c_.hc_streams} * (2 + c_.hc_streams);
    Connection(prefix + ".hc_attn", mixes, 3);
    Plain(prefix + ".attn_norm.weight", {c_.hidden_size});
    Attention(prefix + ".attn", layer.attention);
    Connection(prefix + ".hc_ffn", mixes, 3);
    Plain(prefix + ".ffn_norm.weight", {c_.hidden_size});
    const std::string gate = prefix + ".ffn.gate";
    Plain(gate + ".weight", {c_.num_experts, c_.hidden_size});
    if (layer.router == DeepSeekV4Router::kHash) {
      Add(gate + ".tid2eid", FileDType::kI64, {c_.vocab_size, c_.experts_per_token});
    } else {
      Add(gate + ".bias", FileDType::kF32, {c_.num_experts});
    }
    for (int32_t e = 0; e < c_.num_experts; ++e) {
      Mlp(absl::StrCat(prefix, ".ffn.experts.", e), layer.experts);
    }
    Mlp(prefix + ".ffn.shared_experts", c_.quantization.dense);
  }

  const DeepSeekV4Config& c_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace

std::vector<TensorInfo> DeepSeekV4Tensors(const DeepSeekV4Config& config) {
  return Lister(config).List();
}

bool IsDeepSeekV4Mtp(std::string_view name) { return name.starts_with("mtp."); }

}  // namespace millrace
