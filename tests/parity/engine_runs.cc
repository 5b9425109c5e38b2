#include "tests/parity/engine_runs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <future>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/core/check.h"

namespace millrace {
namespace {

class Collector final : public TokenSink {
 public:
  void OnToken(const TokenEvent& event) override {
    output_.tokens.push_back(event.token);
    if (output_.tokens.size() == kAFew) begun_.set_value();
    if (event.logprobs.has_value()) output_.scored.push_back(*event.logprobs);
    if (output_.tokens.size() > 1) return;
    output_.logits = event.prompt_logits;
    output_.prompt_logprobs = event.prompt_logprobs;
    output_.cached_tokens = event.cached_tokens;
  }
  void OnFinish(const FinishEvent& event) override {
    output_.status = event.status;
    done_.set_value();
  }
  static constexpr size_t kAFew = 3;
  void WaitForAFew() { begun_.get_future().wait(); }
  Output Take() {
    done_.get_future().wait();
    return std::move(output_);
  }

 private:
  Output output_;
  std::promise<void> begun_;
  std::promise<void> done_;
};

}  // namespace

std::string MakeFolder(const std::string& name) {
  const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::create_directories(dir);
  return dir.string();
}

double LargestError(const std::vector<std::vector<double>>& want,
                    const std::vector<std::vector<float>>& got) {
  if (want.size() != got.size()) return INFINITY;
  double worst = 0;
  for (size_t t = 0; t < want.size(); ++t) {
    if (want[t].size() != got[t].size()) return INFINITY;
    for (size_t i = 0; i < want[t].size(); ++i) {
      const double d = std::abs(want[t][i] - static_cast<double>(got[t][i]));
      worst = std::max(worst, std::isnan(d) ? INFINITY : d);
    }
  }
  return worst;
}

double Rms(const std::vector<std::vector<double>>& rows) {
  double sum = 0, count = 0;
  for (const std::vector<double>& row : rows) {
    for (const double x : row) sum += x * x;
    count += static_cast<double>(row.size());
  }
  return std::sqrt(sum / count);
}

std::vector<std::vector<double>> Difference(const std::vector<std::vector<double>>& a,
                                            const std::vector<std::vector<float>>& b) {
  MR_CHECK_EQ(a.size(), b.size());
  std::vector<std::vector<double>> rows = a;
  for (size_t t = 0; t < a.size(); ++t) {
    for (size_t i = 0; i < a[t].size(); ++i) rows[t][i] -= double{b[t][i]};
  }
  return rows;
}

LocalExecutorConfig ExecutorConfig(const std::string& dir, const EngineSetup& setup) {
  LocalExecutorConfig config;
  config.runner.model_dir = dir;
  config.runner.dtype = setup.dtype;
  config.runner.kv_dtype = setup.kv_dtype.value_or(setup.dtype);
  config.runner.numerics = setup.numerics;
  config.runner.quantize = setup.quantize;
  config.runner.expert_parallel = setup.expert_parallel;
  config.runner.data_parallel_size = setup.groups;
  config.runner.page_tokens = setup.page_tokens;
  config.runner.enforce_eager = setup.enforce_eager;
  config.runner.max_num_seqs = setup.max_num_seqs;
  config.runner.max_num_batched_tokens = setup.max_batch_tokens;
  config.runner.max_model_len = setup.max_model_len;
  config.tensor_parallel_size = setup.ranks;
  config.device = setup.device;
  config.threads = setup.threads;
  return config;
}

std::unique_ptr<Engine> Start(const std::string& dir, const EngineSetup& setup) {
  const LocalExecutorConfig config = ExecutorConfig(dir, setup);
  absl::StatusOr<std::unique_ptr<LocalExecutor>> executor = LocalExecutor::Create(config);
  EXPECT_TRUE(executor.ok()) << executor.status();
  if (!executor.ok()) return nullptr;
  EXPECT_TRUE((*executor)->AllocateCache(setup.pages).ok());
  EngineOptions options;
  options.scheduler = {.num_pages = setup.pages,
                       .page_tokens = setup.page_tokens,
                       .max_num_seqs = setup.max_num_seqs,
                       .max_num_batched_tokens = setup.max_batch_tokens,
                       .max_chunk_tokens = setup.chunk,
                       .max_model_len = setup.max_model_len,
                       .max_waiting = 100,
                       .data_parallel_size = setup.groups,
                       .enable_prefix_caching = setup.prefix_cache};
  std::unique_ptr<Engine> engine = *Engine::Create(options);
  EXPECT_TRUE(engine->SetExecutor(*std::move(executor), setup.pages).ok());
  return engine;
}

std::vector<Output> RunAll(Engine& engine, std::vector<Request> requests) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (Request& request : requests) {
    request.id = engine.NewId();
    sinks.push_back(std::make_shared<Collector>());
    EXPECT_TRUE(engine.Submit(std::move(request), sinks.back()).ok());
  }
  std::vector<Output> outputs;
  for (const auto& sink : sinks) outputs.push_back(sink->Take());
  return outputs;
}

void RunAndCancel(Engine& engine, Request request) {
  request.id = engine.NewId();
  const SequenceId id = request.id;
  const auto sink = std::make_shared<Collector>();
  EXPECT_TRUE(engine.Submit(std::move(request), sink).ok());
  sink->WaitForAFew();
  engine.Cancel(id, FinishReason::kAbort);
  sink->Take();
}

std::vector<std::vector<float>> PromptLogits(Engine& engine, const std::vector<int32_t>& prompt) {
  Output output = RunAll(engine, {Greedy(prompt, 1, true)})[0];
  EXPECT_TRUE(output.status.ok()) << output.status;
  return std::move(output.logits);
}

std::vector<int32_t> Prompt(int32_t length, int32_t seed, int32_t vocab) {
  std::vector<int32_t> ids;
  uint32_t x = static_cast<uint32_t>(seed) * 2654435761u + 12345u;
  for (int32_t i = 0; i < length; ++i) {
    x = x * 1664525u + 1013904223u;
    ids.push_back(static_cast<int32_t>((x >> 8) % static_cast<uint32_t>(vocab)));
  }
  return ids;
}

Request Greedy(std::vector<int32_t> prompt, int32_t max_tokens, bool with_logits) {
  Request r;
  for (size_t i = 0; with_logits && i < prompt.size(); ++i) {
    r.logits_positions.push_back(static_cast<int32_t>(i));
  }
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0;
  r.sampling.max_tokens = max_tokens;
  r.sampling.num_logprobs = 0;
  return r;
}

Request Sampled(std::vector<int32_t> prompt, int32_t max_tokens, uint64_t seed) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.max_tokens = max_tokens;
  r.sampling.temperature = 0.8f;
  r.sampling.top_p = 0.95f;
  r.sampling.top_k = 40;
  r.sampling.seed = seed;
  if (seed % 2 == 0) {
    r.sampling.repetition_penalty = 1.1f;
    r.sampling.presence_penalty = 0.3f;
    r.sampling.frequency_penalty = 0.2f;
  }
  return r;
}

}  // namespace millrace
