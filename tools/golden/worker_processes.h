// Ranks as worker processes of their own, as a deployment has them.
#ifndef TOOLS_GOLDEN_WORKER_PROCESSES_H_
#define TOOLS_GOLDEN_WORKER_PROCESSES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/runtime/runner_config.h"
#include "engine/runtime/step_executor.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

struct WorkerProcessesOptions {
  RunnerConfig runner;               // model_dir must be absolute
  int32_t tensor_parallel_size = 1;  // of each of runner.data_parallel_size groups
  int32_t threads_per_rank = 1;
  int32_t num_pages = 0;
  DeviceType device = DeviceType::kCpu;  // kCuda: worker n computes on GPU n
  std::string worker_binary;             // tools/serve:worker
};

// Starts the workers and waits until they have loaded the model. They end with the executor.
// Errors: a worker's own, or DeadlineExceeded when one does not come.
absl::StatusOr<std::unique_ptr<StepExecutor>> StartWorkerProcesses(
    const WorkerProcessesOptions& options);

}  // namespace millrace

#endif  // TOOLS_GOLDEN_WORKER_PROCESSES_H_
