// What the controller's flags mean for one model.
#ifndef TOOLS_SERVE_CONTROLLER_CONFIG_H_
#define TOOLS_SERVE_CONTROLLER_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/controller/frontdoor/served_model.h"
#include "distributed/controller/frontdoor/server.h"
#include "engine/runtime/runner_config.h"

namespace millrace {

// Flags as the user gave them, in their own spelling.
struct ControllerFlags {
  std::string model;
  std::string tokenizer;
  std::string served_model_name;
  int32_t tensor_parallel_size = 1;
  int32_t pipeline_parallel_size = 1;
  int32_t data_parallel_size = 1;
  std::string max_model_len = "0";
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 2048;
  int32_t max_waiting = 4096;
  bool enforce_eager = false;
  std::vector<std::string> cuda_graph_sizes;
  int32_t block_size = 0;
  bool enable_prefix_caching = true;
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string numerics = "serving";
  std::string quantization = "auto";
  bool enable_expert_parallel = false;
  std::string load_format = "auto";
  int32_t num_gpu_blocks_override = 0;
  int64_t kv_cache_memory_bytes = 0;
  double gpu_memory_utilization = 0;
  uint64_t seed = 0;
};

struct ControllerConfig {
  ServedModel model;
  RunnerConfig runner;
  SchedulerConfig scheduler;
  int32_t tensor_parallel_size = 1;  // of each of runner.data_parallel_size groups
  int32_t num_pages = 0;
  int64_t kv_cache_memory_bytes = 0;
  double memory_utilization = 0;
};

// Reads the model's folder and settles every default. Errors name the flag.
absl::StatusOr<ControllerConfig> ResolveConfig(const ControllerFlags& flags);

}  // namespace millrace

#endif  // TOOLS_SERVE_CONTROLLER_CONFIG_H_
