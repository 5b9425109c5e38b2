// Runs requests through a whole engine in this process, for tests.
#ifndef TESTS_PARITY_ENGINE_RUNS_H_
#define TESTS_PARITY_ENGINE_RUNS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/request/request.h"
#include "engine/runtime/engine.h"
#include "kernels/core/device.h"
#include "kernels/core/dtype.h"
#include "tests/parity/tiny_llama.h"

namespace millrace {

struct Setup {
  int32_t ranks = 1;
  int32_t chunk = 0;
  bool prefix_cache = false;
  int32_t pages = 128;
  int32_t max_num_seqs = 8;
  DType dtype = DType::kF32;
  int32_t page_tokens = 4;
  DeviceType device = DeviceType::kCpu;
  bool enforce_eager = false;
};

struct Output {
  absl::Status status;
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;
  std::vector<ScoredToken> scored;
  std::vector<ScoredToken> prompt_logprobs;
  int32_t cached_tokens = 0;
};

// Writes the model into a folder of the test's and returns its path.
std::string Folder(const TinyLlama& model, const std::string& name);

// Null, and a failed test, when the model cannot be loaded.
std::unique_ptr<Engine> Start(const std::string& dir, const Setup& setup);

// All at once; in the order of the requests.
std::vector<Output> RunAll(Engine& engine, std::vector<Request> requests);

std::vector<int32_t> Prompt(int32_t length, int32_t seed, int32_t vocab = 61);

// With the logits of every prompt position, if asked for.
Request Greedy(std::vector<int32_t> prompt, int32_t max_tokens, bool with_logits);

// A mix of everything that changes what is sampled.
Request Sampled(std::vector<int32_t> prompt, int32_t max_tokens, uint64_t seed);

}  // namespace millrace

#endif  // TESTS_PARITY_ENGINE_RUNS_H_
