// step_bench: times the steps of one rank, see README.md.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/local_executor.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device.h"
#include "tools/common/device_name.h"
#include "tools/common/flags.h"
#include "tools/step_bench/step_driver.h"

ABSL_FLAG(std::string, model, "", "folder with a config.json; weights are made up");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda or cuda:N");
ABSL_FLAG(std::vector<std::string>, batch, std::vector<std::string>({"1"}), "decode batch sizes");
ABSL_FLAG(int32_t, context, 128, "tokens in the cache of each sequence when decoding starts");
ABSL_FLAG(int32_t, steps, 64, "decode steps that are timed");
ABSL_FLAG(int32_t, chunk, 2048, "prompt tokens of one step");
ABSL_FLAG(int32_t, block_size, 64, "tokens of a cache page");
ABSL_FLAG(bool, enforce_eager, false, "no captured graphs");

namespace millrace {
namespace {

struct Bound {
  double bytes_per_second = 0;  // 0: not known
};

absl::StatusOr<Bound> MeasureBound(const DeviceChoice& choice) {
  if (choice.type == DeviceType::kCpu) return Bound();
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, CreateCudaDevice(choice.ordinal));
  ASSIGN_OR_RETURN(const std::unique_ptr<CudaBench> bench, CudaBench::Create(*device));
  return Bound{bench->ceiling().copy_bytes_per_second};
}

absl::StatusOr<std::vector<int32_t>> Batches() {
  std::vector<int32_t> batches;
  for (const std::string& text : absl::GetFlag(FLAGS_batch)) {
    int32_t batch = 0;
    if (!absl::SimpleAtoi(text, &batch) || batch < 1) {
      return absl::InvalidArgumentError(absl::StrCat("--batch: '", text, "' is no batch size"));
    }
    batches.push_back(batch);
  }
  return batches;
}

// One batch size: its own executor, so that each starts with an empty cache.
absl::Status BenchBatch(int32_t batch, const DeviceChoice& device, const Bound& bound) {
  const int32_t context = absl::GetFlag(FLAGS_context);
  const int32_t steps = absl::GetFlag(FLAGS_steps);
  const int32_t room = context + steps + StepDriver::kWarmUpSteps + 1;
  LocalExecutorConfig config;
  config.device = device.type;
  config.cuda_device = device.ordinal;
  config.threads = static_cast<int32_t>(std::thread::hardware_concurrency());
  RunnerConfig& runner = config.runner;
  runner.model_dir = PathFromUser(absl::GetFlag(FLAGS_model));
  runner.load_format = LoadFormat::kDummy;
  runner.page_tokens = absl::GetFlag(FLAGS_block_size);
  runner.max_num_seqs = batch;
  runner.max_num_batched_tokens = std::max(absl::GetFlag(FLAGS_chunk), batch);
  runner.max_model_len = room;
  runner.enforce_eager = absl::GetFlag(FLAGS_enforce_eager);
  runner.cuda_graph_sizes = {batch};
  ASSIGN_OR_RETURN(const std::unique_ptr<LocalExecutor> executor, LocalExecutor::Create(config));
  const int32_t pages = (room + runner.page_tokens - 1) / runner.page_tokens * batch;
  RETURN_IF_ERROR(executor->AllocateCache(pages));

  StepDriver driver(*executor, runner.page_tokens, executor->model_config().vocab_size);
  ASSIGN_OR_RETURN(const double first,
                   driver.Prefill(1, context, room, runner.max_num_batched_tokens));
  (void)first;  // libraries load their kernels at their first use
  ASSIGN_OR_RETURN(const double prefill,
                   driver.Prefill(batch, context, room, runner.max_num_batched_tokens));
  ASSIGN_OR_RETURN(const double step, driver.Decode(steps));
  std::printf("%5d %8d %12.0f %10.3f %12.1f", batch, context, batch * context / prefill, step * 1e3,
              batch / step);
  if (bound.bytes_per_second > 0) {
    const RankMemory& memory = executor->memory()[0];
    const ModelConfig& model = executor->model_config();
    // All weights but the input embedding, of which a step reads a row a token, and the cache.
    const double embedding = model.tie_embeddings ? 0
                                                  : 2.0 * static_cast<double>(model.vocab_size) *
                                                        static_cast<double>(model.hidden_size);
    const double cache = static_cast<double>(memory.bytes_per_page) / runner.page_tokens *
                         (context + StepDriver::kWarmUpSteps + steps / 2.0) * batch;
    const double floor =
        (static_cast<double>(memory.weight_bytes) - embedding + cache) / bound.bytes_per_second;
    std::printf(" %10.3f %6.1f %%", floor * 1e3, 100 * floor / step);
  }
  std::printf("\n");
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status Run() {
  if (absl::GetFlag(FLAGS_model).empty()) {
    return absl::InvalidArgumentError("--model: want a folder with a config.json");
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> batches, Batches());
  ASSIGN_OR_RETURN(const DeviceChoice device, ParseDevice(absl::GetFlag(FLAGS_device)));
  ASSIGN_OR_RETURN(const Bound bound, MeasureBound(device));
  if (bound.bytes_per_second > 0) {
    std::printf("copy bandwidth %.2f TB/s\n", bound.bytes_per_second * 1e-12);
  }
  std::printf("%5s %8s %12s %10s %12s %10s %8s\n", "batch", "context", "prefill/s", "ms/step",
              "tokens/s", "bound ms", "of it");
  for (const int32_t batch : batches) RETURN_IF_ERROR(BenchBatch(batch, device, bound));
  return absl::OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("step_bench --model DIR [flags]: times decode and prefill steps");
  millrace::ParseFlags(argc, argv);
  const absl::Status status = millrace::Run();
  if (!status.ok()) {
    std::fprintf(stderr, "step_bench: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
