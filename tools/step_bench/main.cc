// step_bench: times the steps of one rank, see README.md.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/config/parse.h"
#include "engine/runtime/local_executor.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device.h"
#include "tools/common/device_name.h"
#include "tools/common/flags.h"
#include "tools/common/line_plot.h"
#include "tools/step_bench/step_driver.h"

ABSL_FLAG(std::string, model, "", "folder with a config.json; weights are made up");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda or cuda:N");
ABSL_FLAG(std::vector<std::string>, batch, std::vector<std::string>({"1"}), "decode batch sizes");
ABSL_FLAG(int32_t, context, 128, "tokens in the cache of each sequence when decoding starts");
ABSL_FLAG(int32_t, steps, 64, "decode steps that are timed");
ABSL_FLAG(int32_t, chunk, 2048, "prompt tokens of one step");
ABSL_FLAG(int32_t, block_size, 64, "tokens of a cache page");
ABSL_FLAG(std::string, kv_cache_dtype, "bfloat16", "of the cache: float32, bfloat16 or fp8");
ABSL_FLAG(std::string, plot, "", "write tokens/s by batch as an SVG here");
ABSL_FLAG(bool, enforce_eager, false, "no captured graphs");
ABSL_FLAG(bool, quantize, false, "FP8 weights of the linear layers, made from floats at load");

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

struct Bed {
  std::unique_ptr<LocalExecutor> executor;
  int32_t room = 0;   // tokens of each sequence
  int32_t chunk = 0;  // tokens of a step
};

// One executor for all batch sizes: weights take longest.
absl::StatusOr<Bed> Load(const std::vector<int32_t>& batches, const DeviceChoice& device) {
  const int32_t most = *std::max_element(batches.begin(), batches.end());
  Bed bed = {.room = absl::GetFlag(FLAGS_context) + absl::GetFlag(FLAGS_steps) +
                     StepDriver::kWarmUpSteps + 1,
             .chunk = std::max(absl::GetFlag(FLAGS_chunk), most)};
  LocalExecutorConfig config;
  config.device = device.type;
  config.cuda_device = device.ordinal;
  config.threads = static_cast<int32_t>(std::thread::hardware_concurrency());
  RunnerConfig& runner = config.runner;
  runner.model_dir = PathFromUser(absl::GetFlag(FLAGS_model));
  runner.load_format = LoadFormat::kDummy;
  ASSIGN_OR_RETURN(const ModelConfig model, LoadModelConfig(runner.model_dir));
  runner.quantize = absl::GetFlag(FLAGS_quantize);
  if (runner.quantize || model.fp8.has_value()) runner.numerics = Numerics::kServing;
  runner.page_tokens = absl::GetFlag(FLAGS_block_size);
  const std::optional<DType> cache = CacheDTypeFromName(absl::GetFlag(FLAGS_kv_cache_dtype));
  if (!cache.has_value()) {
    return absl::InvalidArgumentError("--kv-cache-dtype: want float32, bfloat16 or fp8");
  }
  runner.kv_dtype = *cache;
  runner.max_num_seqs = most;
  runner.max_num_batched_tokens = bed.chunk;
  runner.max_model_len = bed.room;
  runner.enforce_eager = absl::GetFlag(FLAGS_enforce_eager);
  runner.cuda_graph_sizes = batches;
  ASSIGN_OR_RETURN(bed.executor, LocalExecutor::Create(config));
  RETURN_IF_ERROR(
      bed.executor->AllocateCache((bed.room + runner.page_tokens - 1) / runner.page_tokens * most));
  return bed;
}

// Seconds that a decode step takes at the least: all weights but the input embedding, of which a
// step reads a row a token, and the cache, at copy bandwidth.
double DecodeBound(const LocalExecutor& executor, int32_t batch, const Bound& bound) {
  const RankMemory& memory = executor.memory()[0];
  const ModelConfig& model = executor.model_config();
  const double embedding = model.tie_embeddings ? 0
                                                : 2.0 * static_cast<double>(model.vocab_size) *
                                                      static_cast<double>(model.hidden_size);
  const double tokens =
      absl::GetFlag(FLAGS_context) + StepDriver::kWarmUpSteps + absl::GetFlag(FLAGS_steps) / 2.0;
  const double cache =
      static_cast<double>(memory.bytes_per_page) / absl::GetFlag(FLAGS_block_size) * tokens * batch;
  return (static_cast<double>(memory.weight_bytes) - embedding + cache) / bound.bytes_per_second;
}

// Tokens a second; `bound` is 0 where it is not known.
struct Throughput {
  double measured = 0;
  double bound = 0;
};

absl::StatusOr<Throughput> BenchBatch(int32_t batch, const Bed& bed, const Bound& bound,
                                      StepDriver& driver) {
  const int32_t context = absl::GetFlag(FLAGS_context);
  ASSIGN_OR_RETURN(const double prefill, driver.Prefill(batch, context, bed.room, bed.chunk));
  ASSIGN_OR_RETURN(const double step, driver.Decode(absl::GetFlag(FLAGS_steps)));
  std::printf("%5d %8d %12.0f %10.3f %12.1f", batch, context, batch * context / prefill, step * 1e3,
              batch / step);
  Throughput result = {.measured = batch / step};
  if (bound.bytes_per_second > 0) {
    const double floor = DecodeBound(*bed.executor, batch, bound);
    std::printf(" %10.3f %6.1f %%", floor * 1e3, 100 * floor / step);
    result.bound = batch / floor;
  }
  std::printf("\n");
  std::fflush(stdout);
  return result;
}

absl::Status WritePlot(const std::string& path, const std::vector<int32_t>& batches,
                       const std::vector<Throughput>& results) {
  PlotPanel panel = {.y_label = "decode, tokens/s", .x_label = "sequences in the batch"};
  PlotLine measured = {.name = "measured", .color = "#1f77b4"};
  PlotLine bound = {.name = "bound by copy bandwidth", .color = "#bbbbbb"};
  for (size_t i = 0; i < batches.size(); ++i) {
    panel.ticks.push_back(absl::StrCat(batches[i]));
    measured.values.push_back(results[i].measured);
    bound.values.push_back(results[i].bound);
  }
  panel.lines = {measured, bound};
  const std::string title = absl::StrCat("contexts of ", absl::GetFlag(FLAGS_context), " tokens");
  std::ofstream out(path);
  out << LinePlotSvg({panel}, title);
  out.close();
  if (!out) return absl::InternalError(absl::StrCat("--plot: cannot write ", path));
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
  ASSIGN_OR_RETURN(const Bed bed, Load(batches, device));
  StepDriver driver(*bed.executor, absl::GetFlag(FLAGS_block_size),
                    bed.executor->model_config().vocab_size);
  // Libraries load their kernels at their first use.
  RETURN_IF_ERROR(driver.Prefill(1, absl::GetFlag(FLAGS_context), bed.room, bed.chunk).status());
  std::vector<Throughput> results;
  for (const int32_t batch : batches) {
    ASSIGN_OR_RETURN(results.emplace_back(), BenchBatch(batch, bed, bound, driver));
  }
  const std::string plot = absl::GetFlag(FLAGS_plot);
  if (!plot.empty()) RETURN_IF_ERROR(WritePlot(PathFromUser(plot), batches, results));
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
