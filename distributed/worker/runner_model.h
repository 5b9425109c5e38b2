// The real RankModel: engine/runtime's ModelRunner.
#ifndef DISTRIBUTED_WORKER_RUNNER_MODEL_H_
#define DISTRIBUTED_WORKER_RUNNER_MODEL_H_

#include <memory>
#include <string>

#include "distributed/worker/rank_model.h"

namespace millrace {

class RunnerModelFactory final : public RankModelFactory {
 public:
  // Of the checkpoint; "" for a folder without weights (dummy weights need none).
  absl::StatusOr<std::string> Fingerprint(const std::string& dir) override;
  absl::StatusOr<std::unique_ptr<RankModel>> Load(const RunnerConfig& config, Device& device,
                                                  const RankGroups& groups,
                                                  const Progress& progress) override;
};

}  // namespace millrace

#endif  // DISTRIBUTED_WORKER_RUNNER_MODEL_H_
