#include "engine/runtime/local_executor.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/model_runner.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "kernels/cpu/cpu_device.h"

namespace millrace {
namespace {

// When one rank fails, its peers fail too, because it left them: their errors say nothing.
absl::Status MostTelling(const std::vector<absl::Status>& by_rank) {
  absl::Status chosen;
  for (size_t r = 0; r < by_rank.size(); ++r) {
    const absl::Status& status = by_rank[r];
    if (status.ok()) continue;
    if (chosen.ok() || (absl::IsUnavailable(chosen) && !absl::IsUnavailable(status))) {
      chosen = absl::Status(status.code(), absl::StrCat("rank ", r, ": ", status.message()));
    }
  }
  return chosen;
}

}  // namespace

// One rank: a thread that runs tasks in order, and what those tasks work on.
class LocalExecutor::Rank final {
 public:
  explicit Rank(Communicator& comm) : comm_(comm), thread_([this] { Loop(); }) {}

  ~Rank() {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // The task runs on the rank's thread after all earlier ones.
  void Post(std::function<absl::StatusOr<StepResult>()> task) {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

  // Waits for the oldest task whose result was not taken.
  absl::StatusOr<StepResult> Take() {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [this] { return !results_.empty(); });
    absl::StatusOr<StepResult> result = std::move(results_.front());
    results_.pop_front();
    return result;
  }

  absl::Status Load(const LocalExecutorConfig& config, const LoadProgress& progress) {
    const int threads = std::max(1, config.threads / comm_.size());
    ASSIGN_OR_RETURN(device_, CpuDevice::Create(threads));
    ASSIGN_OR_RETURN(runner_, ModelRunner::Create(config.runner, *device_, comm_, progress));
    return absl::OkStatus();
  }

  // REQUIRES: Load() succeeded.
  ModelRunner& runner() { return *runner_; }
  Communicator& comm() { return comm_; }

 private:
  void Loop() {
    std::unique_lock<std::mutex> lock(mu_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (stop_) return;
      const std::function<absl::StatusOr<StepResult>()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      absl::StatusOr<StepResult> result = task();
      if (!result.ok()) comm_.Abort();  // the peers must not wait for this rank
      lock.lock();
      results_.push_back(std::move(result));
      changed_.notify_all();
    }
  }

  Communicator& comm_;
  std::unique_ptr<CpuDevice> device_;    // made and used by the rank's thread
  std::unique_ptr<ModelRunner> runner_;  // likewise

  std::mutex mu_;  // guards the three below
  std::condition_variable changed_;
  std::deque<std::function<absl::StatusOr<StepResult>()>> tasks_;
  std::deque<absl::StatusOr<StepResult>> results_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all above
};

template <typename Body>
absl::Status LocalExecutor::OnAllRanks(const Body& body) {
  for (std::unique_ptr<Rank>& rank : ranks_) {
    rank->Post([&body, &rank]() -> absl::StatusOr<StepResult> {
      RETURN_IF_ERROR(body(*rank));
      return StepResult();
    });
  }
  std::vector<absl::Status> statuses;
  for (std::unique_ptr<Rank>& rank : ranks_) statuses.push_back(rank->Take().status());
  return MostTelling(statuses);
}

LocalExecutor::LocalExecutor(int32_t ranks) : group_(ranks) {
  for (int32_t r = 0; r < ranks; ++r) {
    ranks_.push_back(std::make_unique<Rank>(group_.communicator(r)));
  }
}

LocalExecutor::~LocalExecutor() {
  if (launched_ > 0) group_.communicator(0).Abort();
}

absl::StatusOr<std::unique_ptr<LocalExecutor>> LocalExecutor::Create(
    const LocalExecutorConfig& config, const LoadProgress& progress) {
  if (config.tensor_parallel_size < 1 || config.threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor_parallel_size = ", config.tensor_parallel_size,
                     ", threads = ", config.threads, ", want at least 1 of each"));
  }
  std::unique_ptr<LocalExecutor> executor(new LocalExecutor(config.tensor_parallel_size));
  RETURN_IF_ERROR(executor->OnAllRanks([&](Rank& rank) {
    return rank.Load(config, rank.comm().rank() == 0 ? progress : LoadProgress());
  }));
  for (std::unique_ptr<Rank>& rank : executor->ranks_) {
    ASSIGN_OR_RETURN(RankMemory memory, rank->runner().memory());
    executor->memory_.push_back(memory);
  }
  executor->model_config_ = executor->ranks_[0]->runner().model_config();
  return executor;
}

absl::Status LocalExecutor::AllocateCache(int32_t num_pages) {
  return OnAllRanks([&](Rank& rank) { return rank.runner().AllocateCache(num_pages); });
}

absl::Status LocalExecutor::Launch(const StepPlan& plan) {
  RETURN_IF_ERROR(failure_);
  // Owned by the tasks of all ranks, whichever ends last.
  const std::shared_ptr<const StepPlan> shared = std::make_shared<StepPlan>(plan);
  for (std::unique_ptr<Rank>& rank : ranks_) {
    rank->Post([shared, &rank] { return rank->runner().Step(*shared); });
  }
  ++launched_;
  return absl::OkStatus();
}

absl::StatusOr<StepResult> LocalExecutor::Collect() {
  RETURN_IF_ERROR(failure_);
  MR_CHECK_GT(launched_, 0);
  --launched_;
  std::vector<absl::Status> statuses;
  StepResult first;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    absl::StatusOr<StepResult> result = ranks_[r]->Take();
    statuses.push_back(result.status());
    if (r == 0 && result.ok()) first = *std::move(result);
  }
  failure_ = MostTelling(statuses);
  RETURN_IF_ERROR(failure_);
  return first;
}

}  // namespace millrace
