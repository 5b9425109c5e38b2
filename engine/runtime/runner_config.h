// What every rank of a group must agree on to run a model. The controller makes it and hands it to
// the workers; LocalExecutor takes it as it is.
#ifndef ENGINE_RUNTIME_RUNNER_CONFIG_H_
#define ENGINE_RUNTIME_RUNNER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/numerics.h"
#include "kernels/core/dtype.h"

namespace millrace {

enum class LoadFormat : uint8_t { kSafetensors, kDummy };

struct RunnerConfig {
  std::string model_dir;  // Hugging Face folder
  LoadFormat load_format = LoadFormat::kSafetensors;
  DType dtype = DType::kBF16;     // of weights in memory: f32 or bf16
  DType kv_dtype = DType::kBF16;  // of cache rows: f32, bf16, or u8 for FP8 rows
  Numerics numerics = Numerics::kReference;
  bool quantize = false;         // linear layers of a LLaMA in floats become FP8 at load
  bool expert_parallel = false;  // whole experts by rank instead of a part of each
  // Groups of ranks with a batch each, which step together. Sizes below are of one group.
  int32_t data_parallel_size = 1;
  int32_t page_tokens = 16;
  int32_t max_num_seqs = 64;              // slots
  int32_t max_num_batched_tokens = 2048;  // tokens of one step
  int32_t max_model_len = 0;              // > 0: resolved by the controller
  // The cache need not hold a sequence of max_model_len, which is only the most that there may be:
  // sequences are as long as the cache allows (ModelLenFor).
  bool fit_model_len = false;
  uint64_t seed = 0;           // of dummy weights
  bool enforce_eager = false;  // never captures graphs
  // Batch sizes to capture decode graphs for; empty: DefaultGraphSizes(max_num_seqs). Sizes above
  // max_num_seqs are left out.
  std::vector<int32_t> cuda_graph_sizes;
};

// Tokens of the longest sequence, prompt and answer, once a group's cache has `num_pages` pages.
int32_t ModelLenFor(const RunnerConfig& config, int32_t num_pages);

// 1, 2, 4, then every eighth up to 64, every sixteenth up to 256, and max_num_seqs itself where it
// is smaller: a batch is padded by an eighth at most from 64 on.
std::vector<int32_t> DefaultGraphSizes(int32_t max_num_seqs);

// As --kv-cache-dtype and --numerics spell them.
std::string_view CacheDTypeName(DType dtype);
std::optional<DType> CacheDTypeFromName(std::string_view name);
std::optional<Numerics> NumericsFromName(std::string_view name);

// What a rank reports once its weights are loaded, before the cache is sized.
struct RankMemory {
  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;  // activations, scratch and per-sequence state at their largest
  int64_t bytes_per_page = 0;   // cache of all layers, this rank
  int64_t available_bytes = 0;  // free for the cache
  int64_t skipped_tensors = 0;  // of the checkpoint, that the model does not use
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_RUNNER_CONFIG_H_
