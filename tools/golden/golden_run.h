// Runs golden cases through the real scheduler and a real executor.
#ifndef TOOLS_GOLDEN_GOLDEN_RUN_H_
#define TOOLS_GOLDEN_GOLDEN_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/config/numerics.h"
#include "engine/runtime/engine.h"
#include "kernels/core/dtype.h"
#include "tools/common/device_name.h"
#include "tools/golden/compare.h"
#include "tools/golden/golden_file.h"

namespace millrace {

struct GoldenOptions {
  std::string model_dir;
  DType dtype = DType::kF32;      // of weights
  std::optional<DType> kv_dtype;  // of the cache; empty: what the model is served with
  Numerics numerics = Numerics::kReference;
  bool quantize = false;  // a LLaMA's linear layers, at load
  bool expert_parallel = false;
  DeviceChoice device;
  bool enforce_eager = false;
  int32_t tensor_parallel_size = 1;
  int32_t data_parallel_size = 1;
  int32_t threads = 1;  // of all ranks together
  int32_t chunk = 0;    // most tokens of one sequence in a step; 0: prompts are computed whole
  bool prefix_cache = true;
  int32_t num_pages = 0;  // of the cache; 0: room for all cases. Few make sequences wait and yield
  // Not empty: each rank is a process of this binary (tools/serve:worker), else a thread.
  std::string worker_binary;
};

// An engine with the model loaded and room for all cases at once. Errors: whatever loading reports.
absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(const GoldenOptions& options,
                                                   const std::vector<GoldenCase>& cases);

// Runs all cases at the same time, decoding greedily past stop ids. `with_logits` asks for the rows
// of the cases' positions; such a run reads nothing from the prefix cache. The first error of a
// case.
absl::StatusOr<std::vector<CaseOutput>> RunCases(Engine& engine,
                                                 const std::vector<GoldenCase>& cases,
                                                 bool with_logits);

}  // namespace millrace

#endif  // TOOLS_GOLDEN_GOLDEN_RUN_H_
