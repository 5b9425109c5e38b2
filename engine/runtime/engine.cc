#include "engine/runtime/engine.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// How often waiting deadlines are looked at when nothing else happens.
constexpr std::chrono::milliseconds kIdleTick{50};
constexpr size_t kMaxInFlight = 2;

void AddCounters(SchedulerStats& to, const SchedulerStats& from) {
  to.prompt_tokens += from.prompt_tokens;
  to.generated_tokens += from.generated_tokens;
  to.preemptions += from.preemptions;
  to.prefix_queries += from.prefix_queries;
  to.prefix_hits += from.prefix_hits;
  to.numeric_faults += from.numeric_faults;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineOptions options) {
  RETURN_IF_ERROR(options.scheduler.Validate());
  return std::unique_ptr<Engine>(new Engine(std::move(options)));
}

Engine::Engine(EngineOptions options)
    : options_(std::move(options)),
      scheduler_(std::make_unique<DataParallelScheduler>(options_.scheduler)),
      down_reason_(absl::UnavailableError("LOADING: no group of workers has formed yet")) {
  thread_ = std::thread([this] { Run(); });
}

Engine::~Engine() {
  {
    std::lock_guard lock(mu_);
    draining_ = true;
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

absl::Status Engine::SetExecutor(std::unique_ptr<StepExecutor> executor, int32_t num_pages) {
  SchedulerConfig config = options_.scheduler;
  config.num_pages = num_pages;
  RETURN_IF_ERROR(config.Validate());
  Post(NewExecutor{std::move(executor), config});
  std::lock_guard lock(mu_);
  up_ = true;
  return absl::OkStatus();
}

SequenceId Engine::NewId() {
  std::lock_guard lock(mu_);
  return next_id_++;
}

absl::Status Engine::Submit(Request request, std::shared_ptr<TokenSink> sink) {
  std::lock_guard lock(mu_);
  if (draining_) return absl::UnavailableError("DRAINING: the server is shutting down");
  if (!up_) return down_reason_;
  const SchedulerConfig& config = options_.scheduler;
  const int64_t limit =
      int64_t{config.data_parallel_size} * (int64_t{config.max_waiting} + config.max_num_seqs);
  if (live_ >= limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full: ", live_, " sequences are running or waiting"));
  }
  ++live_;
  inbox_.emplace_back(Submission{std::move(request), std::move(sink)});
  changed_.notify_all();
  return absl::OkStatus();
}

void Engine::Cancel(SequenceId id, FinishReason reason, absl::Status status) {
  Post(Cancellation{id, reason, std::move(status)});
}

void Engine::FlushPrefixCache() {
  std::promise<void> done;
  Post(Flush{&done});
  done.get_future().wait();
}

bool Engine::Drain(absl::Duration timeout) {
  {
    std::unique_lock lock(mu_);
    draining_ = true;
    changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout),
                      [this] { return live_ == 0 && !computing_; });
    if (live_ == 0) return true;
  }
  std::promise<void> done;
  Post(FailLive{absl::UnavailableError("DRAINING: the server's shutdown time-out passed"), &done});
  done.get_future().wait();
  return false;
}

EngineStats Engine::Stats() const {
  std::lock_guard lock(mu_);
  EngineStats stats = stats_;
  stats.has_executor = up_;
  stats.draining = draining_;
  return stats;
}

void Engine::Post(Message message) {
  std::lock_guard lock(mu_);
  inbox_.push_back(std::move(message));
  changed_.notify_all();
}

void Engine::Run() {
  while (!WaitForWork()) {
    std::vector<Message> messages;
    {
      std::lock_guard lock(mu_);
      messages.swap(inbox_);
    }
    for (Message& message : messages) {
      std::visit([this](auto& m) { Handle(m); }, message);
    }
    scheduler_->FinishExpired(absl::Now());
    AdvanceSteps();
    PublishStats();
    DeliverEvents();
  }
  executor_.reset();
  in_flight_.clear();
  scheduler_->FailAll(absl::UnavailableError("the server has shut down"));
  DeliverEvents();
}

bool Engine::WaitForWork() {
  std::unique_lock lock(mu_);
  if (!has_work_) {
    changed_.wait_for(lock, kIdleTick, [this] { return stopping_ || !inbox_.empty(); });
  }
  // Messages are handled even while stopping, so that nobody waits for an answer in vain.
  return stopping_ && inbox_.empty();
}

void Engine::Handle(Submission& m) {
  const SequenceId id = m.request.id;
  sinks_.emplace(id, m.sink);
  absl::Status status;
  if (executor_ != nullptr) {
    status = scheduler_->Admit(std::move(m.request));
  } else {
    // Lost after Submit() let the sequence in: it ends like those that were running.
    std::lock_guard lock(mu_);
    status = down_reason_;
  }
  if (status.ok()) return;
  sinks_.erase(id);
  m.sink->OnFinish({.id = id, .reason = FinishReason::kError, .status = status});
  std::lock_guard lock(mu_);
  --live_;
  changed_.notify_all();
}

void Engine::Handle(Cancellation& m) { scheduler_->Finish(m.id, m.reason, std::move(m.status)); }

void Engine::Handle(NewExecutor& m) {
  if (executor_ != nullptr) LoseExecutor(absl::UnavailableError("the workers were replaced"));
  DeliverEvents();
  AddCounters(retired_, scheduler_->stats());
  scheduler_ = std::make_unique<DataParallelScheduler>(m.config);
  executor_ = std::move(m.executor);
  std::lock_guard lock(mu_);
  up_ = true;
}

void Engine::Handle(Flush& m) {
  scheduler_->FlushPrefixCache();
  m.done->set_value();
}

void Engine::Handle(FailLive& m) {
  {
    std::lock_guard lock(mu_);
    up_ = false;
    down_reason_ = m.status;
  }
  scheduler_->FailAll(m.status);
  in_flight_.clear();
  executor_.reset();
  DeliverEvents();
  m.done->set_value();
}

void Engine::AdvanceSteps() {
  has_work_ = false;
  if (executor_ == nullptr) return;
  absl::Status status = LaunchAhead();
  if (status.ok() && !in_flight_.empty()) {
    status = CollectOne();
    has_work_ = true;
  }
  if (!status.ok()) LoseExecutor(status);
}

absl::Status Engine::LaunchAhead() {
  while (in_flight_.size() < kMaxInFlight) {
    const std::optional<StepPlan> plan = scheduler_->Next();
    if (!plan.has_value()) break;
    Flight flight;
    flight.observation.sequences = static_cast<int32_t>(plan->sequences.size());
    flight.observation.tokens = plan->num_tokens();
    flight.launched = absl::Now();
    RETURN_IF_ERROR(executor_->Launch(*plan));
    in_flight_.push_back(flight);
  }
  return absl::OkStatus();
}

absl::Status Engine::CollectOne() {
  ASSIGN_OR_RETURN(const StepResult result, executor_->Collect());
  Flight flight = in_flight_.front();
  in_flight_.erase(in_flight_.begin());
  scheduler_->Commit(result);
  ++steps_;
  const absl::Time now = absl::Now();
  flight.observation.since_last = now - std::max(flight.launched, last_collect_);
  last_collect_ = now;
  if (options_.on_step) options_.on_step(flight.observation);
  return absl::OkStatus();
}

void Engine::LoseExecutor(const absl::Status& status) {
  {
    std::lock_guard lock(mu_);
    up_ = false;
    down_reason_ = status;
  }
  if (options_.on_executor_lost) options_.on_executor_lost(status);
  in_flight_.clear();
  executor_.reset();
  scheduler_->FailAll(status);
}

void Engine::DeliverEvents() {
  int64_t finished = 0;
  for (const SchedulerEvent& event : scheduler_->TakeEvents()) {
    if (const auto* token = std::get_if<TokenEvent>(&event)) {
      const auto it = sinks_.find(token->id);
      MR_CHECK(it != sinks_.end());
      it->second->OnToken(*token);
      continue;
    }
    const auto& finish = std::get<FinishEvent>(event);
    const auto it = sinks_.find(finish.id);
    MR_CHECK(it != sinks_.end());
    const std::shared_ptr<TokenSink> sink = std::move(it->second);
    sinks_.erase(it);
    sink->OnFinish(finish);
    ++finished;
  }
  if (finished == 0) return;
  std::lock_guard lock(mu_);
  live_ -= finished;
  changed_.notify_all();
}

void Engine::PublishStats() {
  SchedulerStats stats = scheduler_->stats();
  AddCounters(stats, retired_);
  std::lock_guard lock(mu_);
  stats_.scheduler = stats;
  stats_.steps = steps_;
  if (computing_ == in_flight_.empty()) {
    computing_ = !in_flight_.empty();
    changed_.notify_all();
  }
}

}  // namespace millrace
