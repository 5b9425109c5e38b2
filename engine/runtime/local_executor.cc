#include "engine/runtime/local_executor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/model_runner.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/cuda_device.h"

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
  explicit Rank(const RankGroups& groups) : groups_(groups), thread_([this] { Loop(); }) {}

  ~Rank() {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // The task runs on the rank's thread after all earlier ones. A task that launches a step leaves
  // the result to the runner; every other one has an empty result.
  void Post(std::function<absl::Status()> task) {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

  // Waits for the oldest result that was not taken.
  absl::StatusOr<StepResult> Take() {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [this] { return !results_.empty(); });
    absl::StatusOr<StepResult> result = std::move(results_.front());
    results_.pop_front();
    return result;
  }

  absl::Status Load(const LocalExecutorConfig& config, const LoadProgress& progress) {
    if (config.device == DeviceType::kCuda) {
      ASSIGN_OR_RETURN(device_, CreateCudaDevice(config.cuda_device));
    } else {
      ASSIGN_OR_RETURN(device_,
                       CpuDevice::Create(std::max(1, config.threads / groups_.world.size())));
    }
    // The threads' group works on host memory; a rank on a GPU is alone.
    if (groups_.world.size() == 1) {
      ASSIGN_OR_RETURN(runner_, ModelRunner::Create(config.runner, *device_,
                                                    single_.emplace(*device_), progress));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(runner_, ModelRunner::Create(config.runner, *device_, groups_, progress));
    return absl::OkStatus();
  }

  // REQUIRES: Load() succeeded.
  ModelRunner& runner() { return *runner_; }
  bool is_first() const { return groups_.world.rank() == 0; }

 private:
  bool StepIsOut() const { return runner_ != nullptr && runner_->in_flight() > 0; }

  void Loop() {
    // How often the device is asked while nothing else is to be done.
    constexpr auto kPoll = std::chrono::microseconds(20);
    std::unique_lock<std::mutex> lock(mu_);
    while (!stop_) {
      if (StepIsOut()) {
        const absl::StatusOr<bool> ready = runner_->Ready();
        if (!ready.ok() || *ready) {
          lock.unlock();
          absl::StatusOr<StepResult> result = runner_->Collect();
          lock.lock();
          Finish(std::move(result));
          continue;
        }
      }
      const auto woken = [this] { return stop_ || !tasks_.empty(); };
      if (!StepIsOut()) {
        changed_.wait(lock, woken);
      } else if (!changed_.wait_for(lock, kPoll, woken)) {
        continue;
      }
      if (!stop_) RunTask(lock);
    }
  }

  void RunTask(std::unique_lock<std::mutex>& lock) {
    const std::function<absl::Status()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    const int before = runner_ == nullptr ? 0 : runner_->in_flight();
    const absl::Status status = task();
    const bool launched = runner_ != nullptr && runner_->in_flight() > before;
    lock.lock();
    if (!status.ok()) {
      Finish(status);
    } else if (!launched) {
      Finish(StepResult());
    }
  }

  void Finish(absl::StatusOr<StepResult> result) {
    if (!result.ok()) {  // the peers must not wait for this rank
      groups_.tensor.Abort();
      groups_.world.Abort();
    }
    results_.push_back(std::move(result));
    changed_.notify_all();
  }

  const RankGroups groups_;
  std::unique_ptr<Device> device_;    // made and used by the rank's thread
  std::optional<SingleRank> single_;  // likewise, like the next
  std::unique_ptr<ModelRunner> runner_;

  std::mutex mu_;  // guards the three below
  std::condition_variable changed_;
  std::deque<std::function<absl::Status()>> tasks_;
  std::deque<absl::StatusOr<StepResult>> results_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all above
};

template <typename Body>
absl::Status LocalExecutor::OnAllRanks(const Body& body) {
  for (std::unique_ptr<Rank>& rank : ranks_) {
    rank->Post([&body, &rank] { return body(*rank); });
  }
  std::vector<absl::Status> statuses;
  for (std::unique_ptr<Rank>& rank : ranks_) statuses.push_back(rank->Take().status());
  return MostTelling(statuses);
}

LocalExecutor::LocalExecutor(int32_t tensor_size, int32_t data_size)
    : tensor_size_(tensor_size), world_(tensor_size * data_size) {
  for (int32_t group = 0; data_size > 1 && group < data_size; ++group) {
    tensor_groups_.push_back(std::make_unique<ThreadGroup>(tensor_size));
  }
  for (int32_t r = 0; r < world_.size(); ++r) {
    Communicator& world = world_.communicator(r);
    Communicator& tensor =
        tensor_groups_.empty()
            ? world
            : tensor_groups_[static_cast<size_t>(r / tensor_size)]->communicator(r % tensor_size);
    RankGroups groups(tensor, world);
    groups.sharing_memory = world_.size();
    ranks_.push_back(std::make_unique<Rank>(groups));
  }
}

LocalExecutor::~LocalExecutor() {
  if (launched_ == 0) return;
  world_.communicator(0).Abort();
  for (const auto& group : tensor_groups_) group->communicator(0).Abort();
}

absl::StatusOr<std::unique_ptr<LocalExecutor>> LocalExecutor::Create(
    const LocalExecutorConfig& config, const LoadProgress& progress) {
  if (config.tensor_parallel_size < 1 || config.threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor_parallel_size = ", config.tensor_parallel_size,
                     ", threads = ", config.threads, ", want at least 1 of each"));
  }
  const int32_t groups = config.runner.data_parallel_size;
  if (groups < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_parallel_size = ", groups, ", want at least 1"));
  }
  if (config.device == DeviceType::kCuda && config.tensor_parallel_size * groups != 1) {
    return absl::UnimplementedError("several GPUs need a process for each rank: start workers");
  }
  std::unique_ptr<LocalExecutor> executor(new LocalExecutor(config.tensor_parallel_size, groups));
  RETURN_IF_ERROR(executor->OnAllRanks(
      [&](Rank& rank) { return rank.Load(config, rank.is_first() ? progress : LoadProgress()); }));
  for (std::unique_ptr<Rank>& rank : executor->ranks_) {
    ASSIGN_OR_RETURN(RankMemory memory, rank->runner().memory());
    executor->memory_.push_back(memory);
  }
  executor->model_config_ = executor->ranks_[0]->runner().model_config();
  return executor;
}

absl::Status LocalExecutor::AllocateCache(int32_t num_pages,
                                          const DecodeGraphs::Progress& progress) {
  return OnAllRanks([&](Rank& rank) {
    return rank.runner().AllocateCache(num_pages,
                                       rank.is_first() ? progress : DecodeGraphs::Progress());
  });
}

absl::Status LocalExecutor::Launch(const StepPlan& plan) {
  RETURN_IF_ERROR(failure_);
  // Owned by the tasks of all ranks, whichever ends last.
  const std::shared_ptr<const StepPlan> shared = std::make_shared<StepPlan>(plan);
  for (std::unique_ptr<Rank>& rank : ranks_) {
    rank->Post([shared, &rank] { return rank->runner().Launch(*shared); });
  }
  ++launched_;
  return absl::OkStatus();
}

absl::StatusOr<StepResult> LocalExecutor::Collect() {
  RETURN_IF_ERROR(failure_);
  MR_CHECK_GT(launched_, 0);
  --launched_;
  std::vector<absl::Status> statuses;
  StepResult all;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    absl::StatusOr<StepResult> result = ranks_[r]->Take();
    statuses.push_back(result.status());
    if (!result.ok() || r % static_cast<size_t>(tensor_size_) != 0) continue;
    // A plan has its sequences by group.
    all.step = result->step;
    std::move(result->sequences.begin(), result->sequences.end(),
              std::back_inserter(all.sequences));
  }
  failure_ = MostTelling(statuses);
  RETURN_IF_ERROR(failure_);
  return all;
}

}  // namespace millrace
