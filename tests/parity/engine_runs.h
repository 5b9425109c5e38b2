// Runs requests through a whole engine in this process, for tests.
#ifndef TESTS_PARITY_ENGINE_RUNS_H_
#define TESTS_PARITY_ENGINE_RUNS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/config/numerics.h"
#include "engine/request/request.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/local_executor.h"
#include "kernels/core/device.h"
#include "kernels/core/dtype.h"

namespace millrace {

struct EngineSetup {
  int32_t ranks = 1;
  int32_t chunk = 0;
  bool prefix_cache = false;
  int32_t pages = 128;
  int32_t max_num_seqs = 8;
  DType dtype = DType::kF32;
  int32_t page_tokens = 4;
  DeviceType device = DeviceType::kCpu;
  bool enforce_eager = false;
  int32_t max_model_len = 80;
  int32_t max_batch_tokens = 96;
  std::optional<DType> kv_dtype;  // empty: dtype
  Numerics numerics = Numerics::kReference;
  bool quantize = false;
  bool expert_parallel = false;
  int32_t threads = 2;  // of all ranks together
  int32_t groups = 1;   // of `ranks` ranks each
};

struct Output {
  absl::Status status;
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;
  std::vector<ScoredToken> scored;
  std::vector<ScoredToken> prompt_logprobs;
  int32_t cached_tokens = 0;
};

// A folder of the test's.
std::string MakeFolder(const std::string& name);

// Writes the model into such a folder and returns its path.
template <typename TinyModel>
std::string Folder(const TinyModel& model, const std::string& name) {
  const std::string dir = MakeFolder(name);
  model.Write(dir);
  return dir;
}

LocalExecutorConfig ExecutorConfig(const std::string& dir, const EngineSetup& setup);

// The largest difference; infinite where sizes differ, NaN where something is.
double LargestError(const std::vector<std::vector<double>>& want,
                    const std::vector<std::vector<float>>& got);

// Root of the mean square.
double Rms(const std::vector<std::vector<double>>& rows);
std::vector<std::vector<double>> Difference(const std::vector<std::vector<double>>& a,
                                            const std::vector<std::vector<float>>& b);

// Null, and a failed test, when the model cannot be loaded.
std::unique_ptr<Engine> Start(const std::string& dir, const EngineSetup& setup);

// All at once; in the order of the requests.
std::vector<Output> RunAll(Engine& engine, std::vector<Request> requests);

// Cancels the request once it has a few tokens, and waits for its end.
void RunAndCancel(Engine& engine, Request request);

// Of each position of a prompt by itself; no rows, and a failed test, where it fails.
std::vector<std::vector<float>> PromptLogits(Engine& engine, const std::vector<int32_t>& prompt);

std::vector<int32_t> Prompt(int32_t length, int32_t seed, int32_t vocab = 61);

// With the logits of every prompt position, if asked for.
Request Greedy(std::vector<int32_t> prompt, int32_t max_tokens, bool with_logits);

// A mix of everything that changes what is sampled.
Request Sampled(std::vector<int32_t> prompt, int32_t max_tokens, uint64_t seed);

}  // namespace millrace

#endif  // TESTS_PARITY_ENGINE_RUNS_H_
