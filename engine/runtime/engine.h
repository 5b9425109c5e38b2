// The engine: one thread that admits, schedules, launches and commits, and tells each sequence's
// sink what happened. It knows neither wire nor workers; a StepExecutor does the computing.
#ifndef ENGINE_RUNTIME_ENGINE_H_
#define ENGINE_RUNTIME_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/request/request.h"
#include "engine/runtime/step_executor.h"
#include "engine/scheduler/data_parallel_scheduler.h"
#include "engine/scheduler/scheduler.h"

namespace millrace {

struct StepObservation {
  int32_t sequences = 0;
  int32_t tokens = 0;         // computed by the step
  absl::Duration since_last;  // between this step's Collect and the one before (or its Launch)
};

struct EngineOptions {
  SchedulerConfig scheduler;
  // Called on the engine thread; must not block and must not call into the engine.
  std::function<void(const StepObservation&)> on_step;
  std::function<void(const absl::Status&)> on_executor_lost;
};

struct EngineStats {
  SchedulerStats scheduler;
  int64_t steps = 0;
  bool has_executor = false;
  bool draining = false;
};

// Every method: any thread, unless it says otherwise.
class Engine final {
 public:
  // Starts the engine thread. Until SetExecutor(), Submit() answers UNAVAILABLE.
  // INVALID_ARGUMENT when options.scheduler is not valid.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(EngineOptions options);
  // Ends live sequences with UNAVAILABLE and joins the thread.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Puts a (new) executor with an empty cache of `num_pages` pages to work. Sequences still live on
  // the one before end with UNAVAILABLE. INVALID_ARGUMENT when the pages do not hold one sequence
  // of max_model_len.
  absl::Status SetExecutor(std::unique_ptr<StepExecutor> executor, int32_t num_pages);

  // A new id for a sequence.
  SequenceId NewId();

  // Queues a sequence; never waits. Its events go to `sink`, which is kept until OnFinish returned.
  // UNAVAILABLE when there is no executor or the engine drains; RESOURCE_EXHAUSTED when too many
  // sequences are live. What the scheduler refuses arrives as OnFinish(kError).
  absl::Status Submit(Request request, std::shared_ptr<TokenSink> sink);
  // Ends a sequence before the next step; OnFinish follows. kStop: the caller saw a stop string.
  void Cancel(SequenceId id, FinishReason reason, absl::Status status = absl::OkStatus());

  // Forgets every reusable prefix; returns once it is done.
  void FlushPrefixCache();

  // Refuses new sequences from now on and waits for the live ones and for the step that was
  // launched ahead of the last one's end; after `timeout` the rest end with UNAVAILABLE. True when
  // all sequences came to their own end.
  bool Drain(absl::Duration timeout);

  // As of the last step.
  EngineStats Stats() const;

 private:
  struct Submission {
    Request request;
    std::shared_ptr<TokenSink> sink;
  };
  struct Cancellation {
    SequenceId id;
    FinishReason reason;
    absl::Status status;
  };
  struct NewExecutor {
    std::unique_ptr<StepExecutor> executor;
    SchedulerConfig config;
  };
  struct Flush {
    std::promise<void>* done;
  };
  struct FailLive {
    absl::Status status;
    std::promise<void>* done;
  };
  using Message = std::variant<Submission, Cancellation, NewExecutor, Flush, FailLive>;

  explicit Engine(EngineOptions options);
  void Run();
  // True when the thread should end.
  bool WaitForWork();
  void Handle(Submission& m);
  void Handle(Cancellation& m);
  void Handle(NewExecutor& m);
  void Handle(Flush& m);
  void Handle(FailLive& m);
  void AdvanceSteps();
  absl::Status LaunchAhead();
  absl::Status CollectOne();
  void LoseExecutor(const absl::Status& status);
  void DeliverEvents();
  void PublishStats();
  void Post(Message message);

  // Engine thread only.
  EngineOptions options_;
  std::unique_ptr<DataParallelScheduler> scheduler_;
  std::unique_ptr<StepExecutor> executor_;
  absl::flat_hash_map<SequenceId, std::shared_ptr<TokenSink>> sinks_;
  struct Flight {
    StepObservation observation;
    absl::Time launched;
  };
  std::vector<Flight> in_flight_;  // oldest first, at most two
  absl::Time last_collect_ = absl::InfinitePast();
  SchedulerStats retired_;  // counters of schedulers replaced with their executor
  int64_t steps_ = 0;

  bool has_work_ = false;  // do not sleep

  mutable std::mutex mu_;  // guards all below but the thread
  std::condition_variable changed_;
  std::vector<Message> inbox_;
  EngineStats stats_;
  int64_t live_ = 0;        // submitted, OnFinish not yet called
  bool computing_ = false;  // steps are launched and not collected
  SequenceId next_id_ = 1;
  bool up_ = false;
  absl::Status down_reason_;  // while not up_
  bool draining_ = false;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_ENGINE_H_
