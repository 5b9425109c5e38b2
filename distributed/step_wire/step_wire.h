// Step messages between controller and worker: structs to protobuf and back.
#ifndef DISTRIBUTED_STEP_WIRE_STEP_WIRE_H_
#define DISTRIBUTED_STEP_WIRE_STEP_WIRE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/runtime/runner_config.h"
#include "engine/scheduler/step_plan.h"
#include "proto/worker.pb.h"

namespace millrace {

// What messages of a group are held to.
struct StepLimits {
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t max_model_len = 0;
  int32_t num_pages = 0;
  int32_t vocab_size = 0;          // 0: not known here, ids only need to be >= 0
  int32_t data_parallel_size = 1;  // groups, each with the limits above

  static StepLimits Of(const RunnerConfig& config, int32_t num_pages, int32_t vocab_size);
};

worker::StepPlan ToProto(const StepPlan& plan);
worker::StepDone ToProto(const StepResult& result);

// InvalidArgument naming the field for counts above the limits, ids, groups, slots, pages,
// positions and offsets out of range, and a sum of tokens above the budget.
absl::StatusOr<StepPlan> FromProto(const worker::StepPlan& proto, const StepLimits& limits);
// InvalidArgument as above. Whether it answers its plan is for WorkerGroup to see.
absl::StatusOr<StepResult> FromProto(const worker::StepDone& proto, const StepLimits& limits);

worker::RunnerConfig ToProto(const RunnerConfig& config);
// InvalidArgument for unknown types and sizes < 1.
absl::StatusOr<RunnerConfig> FromProto(const worker::RunnerConfig& proto);

worker::Loaded ToProto(const RankMemory& memory);
// InvalidArgument for negative sizes.
absl::StatusOr<RankMemory> FromProto(const worker::Loaded& proto);

}  // namespace millrace

#endif  // DISTRIBUTED_STEP_WIRE_STEP_WIRE_H_
