#include "tools/golden/golden_run.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/config/parse.h"
#include "engine/models/load_model.h"
#include "engine/runtime/local_executor.h"
#include "kernels/core/status.h"
#include "tools/golden/worker_processes.h"

namespace millrace {
namespace {

// Collects one case's events and says when it is over.
class CaseSink final : public TokenSink {
 public:
  void OnToken(const TokenEvent& event) override {
    output_.tokens.push_back(event.token);
    if (event.logprobs.has_value() && event.logprobs->top.size() >= 2) {
      output_.margins.push_back(event.logprobs->top[0].logprob - event.logprobs->top[1].logprob);
    }
    if (output_.tokens.size() == 1) {
      output_.logits = event.prompt_logits;
      output_.cached_tokens = event.cached_tokens;
    }
  }

  void OnFinish(const FinishEvent& event) override { finished_.set_value(event.status); }

  // Waits for the end. Once.
  absl::StatusOr<CaseOutput> Take() {
    RETURN_IF_ERROR(finished_.get_future().get());
    return std::move(output_);
  }

 private:
  CaseOutput output_;
  std::promise<absl::Status> finished_;
};

struct Sizes {
  int32_t max_model_len = 0;
  int32_t longest_prompt = 0;
  int32_t pages = 0;
};

Sizes SizesOf(const std::vector<GoldenCase>& cases, int32_t page_tokens) {
  Sizes sizes;
  for (const GoldenCase& c : cases) {
    const int32_t prompt = static_cast<int32_t>(c.prompt.size());
    const int32_t length = prompt + static_cast<int32_t>(c.greedy.size());
    sizes.longest_prompt = std::max(sizes.longest_prompt, prompt);
    sizes.max_model_len = std::max(sizes.max_model_len, length);
    sizes.pages += length / page_tokens + 2;
  }
  return sizes;
}

Request RequestOf(const GoldenCase& c, SequenceId id, bool with_logits) {
  Request request;
  request.id = id;
  request.prompt = c.prompt;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = static_cast<int32_t>(c.greedy.size());
  request.sampling.num_logprobs = 2;
  if (with_logits) request.logits_positions = c.positions;
  return request;
}

struct ReadyExecutor {
  std::unique_ptr<StepExecutor> executor;
  int32_t num_pages = 0;
};

// The only place that knows where ranks run.
absl::StatusOr<ReadyExecutor> MakeExecutor(const GoldenOptions& options, const RunnerConfig& runner,
                                           int32_t num_pages) {
  if (!options.worker_binary.empty()) {
    WorkerProcessesOptions processes;
    processes.runner = runner;
    processes.tensor_parallel_size = options.tensor_parallel_size;
    processes.threads_per_rank =
        std::max(1, options.threads / (options.tensor_parallel_size * options.data_parallel_size));
    processes.num_pages = num_pages;
    processes.device = options.device.type;
    processes.worker_binary = options.worker_binary;
    ASSIGN_OR_RETURN(std::unique_ptr<StepExecutor> executor, StartWorkerProcesses(processes));
    return ReadyExecutor{std::move(executor), num_pages};
  }
  LocalExecutorConfig config;
  config.runner = runner;
  config.tensor_parallel_size = options.tensor_parallel_size;
  config.device = options.device.type;
  config.cuda_device = options.device.ordinal;
  config.threads = options.threads;
  ASSIGN_OR_RETURN(std::unique_ptr<LocalExecutor> local, LocalExecutor::Create(config));
  RETURN_IF_ERROR(local->AllocateCache(num_pages));
  return ReadyExecutor{std::move(local), num_pages};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(const GoldenOptions& options,
                                                   const std::vector<GoldenCase>& cases) {
  ASSIGN_OR_RETURN(const ModelConfig model, LoadModelConfig(options.model_dir));
  const int32_t page_tokens = DefaultPageTokens(model);
  const Sizes sizes = SizesOf(cases, page_tokens);
  RunnerConfig runner;
  runner.model_dir = std::filesystem::absolute(options.model_dir).string();
  runner.dtype = options.dtype;
  runner.numerics = options.numerics;
  runner.quantize = options.quantize;
  runner.kv_dtype =
      options.kv_dtype.value_or(DefaultCacheDType(model, options.numerics, options.dtype));
  runner.expert_parallel = options.expert_parallel;
  runner.data_parallel_size = options.data_parallel_size;
  runner.enforce_eager = options.enforce_eager;
  runner.page_tokens = page_tokens;
  runner.max_num_seqs = static_cast<int32_t>(cases.size());
  runner.max_num_batched_tokens =
      std::max(2048, sizes.longest_prompt + static_cast<int32_t>(cases.size()));
  runner.max_model_len = sizes.max_model_len;
  const int32_t pages = options.num_pages > 0 ? options.num_pages : sizes.pages;
  ASSIGN_OR_RETURN(ReadyExecutor ready, MakeExecutor(options, runner, pages));

  EngineOptions engine_options;
  SchedulerConfig& scheduler = engine_options.scheduler;
  scheduler.num_pages = ready.num_pages;
  scheduler.page_tokens = runner.page_tokens;
  scheduler.max_num_seqs = runner.max_num_seqs;
  scheduler.max_num_batched_tokens = runner.max_num_batched_tokens;
  scheduler.max_chunk_tokens = options.chunk;
  scheduler.max_model_len = runner.max_model_len;
  scheduler.data_parallel_size = runner.data_parallel_size;
  scheduler.enable_prefix_caching = options.prefix_cache;
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(std::move(engine_options)));
  RETURN_IF_ERROR(engine->SetExecutor(std::move(ready.executor), ready.num_pages));
  return engine;
}

absl::StatusOr<std::vector<CaseOutput>> RunCases(Engine& engine,
                                                 const std::vector<GoldenCase>& cases,
                                                 bool with_logits) {
  std::vector<std::shared_ptr<CaseSink>> sinks;  // shared with the engine until OnFinish
  for (const GoldenCase& c : cases) {
    sinks.push_back(std::make_shared<CaseSink>());
    RETURN_IF_ERROR(engine.Submit(RequestOf(c, engine.NewId(), with_logits), sinks.back()));
  }
  std::vector<CaseOutput> outputs;
  for (size_t i = 0; i < sinks.size(); ++i) {
    absl::StatusOr<CaseOutput> output = sinks[i]->Take();
    if (!output.ok()) {
      return absl::Status(output.status().code(),
                          absl::StrCat("case ", i, ": ", output.status().message()));
    }
    outputs.push_back(*std::move(output));
  }
  return outputs;
}

}  // namespace millrace
