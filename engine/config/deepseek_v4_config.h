// What a DeepSeek-V4 model is, as its folder's config.json says, in the released spelling or in
// that of transformers. Plain values, already checked.
#ifndef ENGINE_CONFIG_DEEPSEEK_V4_CONFIG_H_
#define ENGINE_CONFIG_DEEPSEEK_V4_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/dtype.h"

namespace millrace {

class JsonFields;

// What a layer attends to beside its window.
enum class DeepSeekV4Attention : uint8_t {
  kWindow,  // nothing
  kCsa,     // the entries that the indexer picks, one for each 4 tokens
  kHca,     // every entry, one for each 128 tokens
};

// Tokens behind one compressed entry; 0 for kWindow.
constexpr int32_t CompressRatio(DeepSeekV4Attention attention) {
  switch (attention) {
    case DeepSeekV4Attention::kWindow:
      return 0;
    case DeepSeekV4Attention::kCsa:
      return 4;
    case DeepSeekV4Attention::kHca:
      return 128;
  }
  return 0;
}

enum class DeepSeekV4Router : uint8_t {
  kHash,   // a table from token id to experts
  kScore,  // the largest biased scores
};

// How a group of matrices is stored.
enum class DeepSeekV4Storage : uint8_t {
  kPlain,     // bf16 or f32
  kFp8Block,  // E4M3, one scale for each 128 x 128 block
  kMxFp4,     // E2M1, one E8M0 scale for each 32 inputs
  kNvFp4,     // E2M1, one E4M3 scale for each 16 inputs and one f32 scale a matrix
};

enum class DeepSeekV4BlockScale : uint8_t { kE8M0, kF32 };

// Whose key names NVFP4 matrices have, and which way round their f32 scales are.
enum class DeepSeekV4NvFp4Keys : uint8_t {
  kModelOpt,           // weight, weight_scale, weight_scale_2, input_scale: multiply
  kCompressedTensors,  // weight_packed, weight_scale, weight_global_scale: divide
};

// What the config claims. A loader goes by the tensors it finds and may hold them against this.
struct DeepSeekV4Quantization {
  // Attention projections, the indexer's query and the shared expert.
  DeepSeekV4Storage dense = DeepSeekV4Storage::kPlain;
  // Of every kFp8Block matrix.
  DeepSeekV4BlockScale block_scale = DeepSeekV4BlockScale::kE8M0;
  DeepSeekV4NvFp4Keys nvfp4_keys = DeepSeekV4NvFp4Keys::kModelOpt;
  // Patterns of the modules that NVFP4 leaves alone, as the file has them.
  std::vector<std::string> nvfp4_ignore;
};

struct DeepSeekV4Layer {
  DeepSeekV4Attention attention = DeepSeekV4Attention::kWindow;
  DeepSeekV4Router router = DeepSeekV4Router::kScore;
  DeepSeekV4Storage experts = DeepSeekV4Storage::kPlain;  // the routed ones

  bool operator==(const DeepSeekV4Layer&) const = default;
};

// Angles of the last rope_dim channels. YaRN here has no attention factor.
struct DeepSeekV4Rope {
  double theta = 0;
  bool yarn = false;
  // Of YaRN:
  double factor = 1;
  int64_t original_max_position = 0;  // tokens
  double beta_fast = 32;
  double beta_slow = 1;

  bool operator==(const DeepSeekV4Rope&) const = default;
};

// Guaranteed by the parser: sizes are positive and within its limits, `layers` has one entry a
// layer, num_heads is a multiple of o_groups, rope_dim is even and fits head_dim and
// index_head_dim, experts_per_token <= num_experts, the widths of packed matrices are whole groups,
// every token id is below vocab_size. There is one key-value head and one shared expert.
struct DeepSeekV4Config {
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t num_heads = 0;
  int32_t head_dim = 0;
  int32_t rope_dim = 0;
  int32_t q_lora_rank = 0;
  int32_t o_groups = 0;
  int32_t o_lora_rank = 0;     // a group
  int32_t sliding_window = 0;  // tokens, the query's own included
  int32_t max_position = 0;    // tokens, prompt and answer together
  double rms_norm_eps = 0;
  DeepSeekV4Rope window_rope;    // of kWindow layers
  DeepSeekV4Rope compress_rope;  // of all others, also for their window rows

  int32_t index_heads = 0;
  int32_t index_head_dim = 0;
  int32_t index_topk = 0;  // entries

  int32_t expert_width = 0;  // of the shared expert too
  int32_t num_experts = 0;
  int32_t experts_per_token = 0;
  double routed_scaling = 0;  // multiplies the normalised weights
  double swiglu_limit = 0;    // clamps gate from above, up on both sides

  int32_t hc_streams = 0;
  int32_t hc_sinkhorn_iters = 0;
  double hc_eps = 0;

  std::vector<DeepSeekV4Layer> layers;
  int32_t num_mtp_layers = 0;  // in the checkpoint, behind the others
  DeepSeekV4Quantization quantization;
  DType dtype = DType::kBF16;  // of what is not quantised
  std::vector<int32_t> eos_token_ids;
  int32_t bos_token_id = -1;  // -1: none
};

// A file's text, and its path for messages.
struct ConfigText {
  std::string_view json;
  std::string where;
};

// True when architectures or model_type name a DeepSeek-V4 of any kind, one that is refused
// included. Never fails: fields of a wrong type name nothing.
bool NamesDeepSeekV4(const JsonFields& fields);

// `hf_quant` is hf_quant_config.json, which some NVFP4 folders have beside config.json.
// InvalidArgument: malformed, missing, out of range, or two places that contradict each other.
// Unimplemented, by name: DeepSeek-V4.1, DSpark re-packs, other quantisations, and values that
// would change the arithmetic. Any thread.
absl::StatusOr<DeepSeekV4Config> ParseDeepSeekV4Config(const ConfigText& config,
                                                       const std::optional<ConfigText>& hf_quant);

}  // namespace millrace

#endif  // ENGINE_CONFIG_DEEPSEEK_V4_CONFIG_H_
