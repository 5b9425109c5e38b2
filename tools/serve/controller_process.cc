#include "tools/serve/controller_process.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/controller/cluster/page_sizing.h"
#include "engine/runtime/local_executor.h"
#include "kernels/core/status.h"
#include "tools/serve/startup_report.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kLoading[] = "Loading safetensors checkpoint shards";
constexpr char kCapturing[] = "Capturing CUDA graphs";
constexpr std::chrono::seconds kThroughputEvery{10};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

ControllerProcess::ControllerProcess(ControllerOptions options, Console& console)
    : options_(std::move(options)), console_(console), started_(Clock::now()) {}

ControllerProcess::~ControllerProcess() {
  if (feeder_.joinable()) feeder_.join();
}

absl::Status ControllerProcess::Run() {
  RETURN_IF_ERROR(StartServer());
  if (!options_.local) RETURN_IF_ERROR(StartHub());
  feeder_ = std::thread([this] { options_.local ? FeedLocal() : FeedCluster(); });
  WaitForTheEnd();
  return Finish();
}

void ControllerProcess::Stop() {
  std::lock_guard lock(mu_);
  stopping_ = true;
  changed_.notify_all();
}

absl::Status ControllerProcess::StartServer() {
  ServerOptions server = options_.server;
  server.scheduler = options_.config.scheduler;
  server.on_executor_lost = [this](const absl::Status& status) {
    console_.Say(absl::StrCat("the running step failed: ", std::string(status.message())));
    // Nobody comes back with another one.
    if (options_.local) Fail(status);
  };
  ASSIGN_OR_RETURN(server_, Server::Start(std::move(server), options_.config.model));
  if (server_->metrics_port() > 0) {
    console_.Say(absl::StrCat("Metrics: http://", options_.server.host, ":",
                              server_->metrics_port(), "/metrics"));
  }
  if (options_.config.model.tokenizer == nullptr) {
    console_.Say("There is no tokenizer.json: token prompts only, and answers without text");
  } else if (!options_.config.model.chat.has_value()) {
    console_.Say(
        "The model's chat template is not known: messages are refused, prompts are served");
  }
  return absl::OkStatus();
}

absl::Status ControllerProcess::StartHub() {
  WorkerHubOptions hub = options_.hub;
  hub.config = options_.config.runner;
  hub.world = options_.config.tensor_parallel_size * options_.config.runner.data_parallel_size;
  hub.vocab_size = options_.config.model.config.vocab_size;
  hub.num_pages = options_.config.num_pages;
  hub.kv_cache_memory_bytes = options_.config.kv_cache_memory_bytes;
  hub.memory_utilization = options_.config.memory_utilization;
  ASSIGN_OR_RETURN(hub_, WorkerHub::Start(std::move(hub), this));
  console_.Say(absl::StrCat("Workers dial in at ", options_.hub.host, ":", hub_->port()));
  return absl::OkStatus();
}

void ControllerProcess::FeedLocal() {
  {
    std::lock_guard lock(mu_);
    loading_locally_ = true;
    load_started_ = Clock::now();
  }
  const absl::Status status = LoadLocal();
  {
    std::lock_guard lock(mu_);
    loading_locally_ = false;
  }
  console_.EndProgress();
  if (!status.ok()) return Fail(status);
  SayReady();
}

absl::Status ControllerProcess::LoadLocal() {
  const ControllerConfig& config = options_.config;
  const LocalExecutorConfig local = {.runner = config.runner,
                                     .tensor_parallel_size = config.tensor_parallel_size,
                                     .device = options_.device.type,
                                     .threads = options_.threads,
                                     .cuda_device = options_.device.ordinal};
  ASSIGN_OR_RETURN(std::unique_ptr<LocalExecutor> executor,
                   LocalExecutor::Create(local, [this](int64_t done, int64_t total) {
                     console_.Progress(kLoading, done, total);
                   }));
  console_.EndProgress();
  std::vector<RankRoom> rooms;
  for (const RankMemory& memory : executor->memory()) {
    const bool gpu = options_.device.type == DeviceType::kCuda;
    rooms.push_back({.host = "localhost", .memory_id = gpu ? "gpu" : "", .memory = memory});
  }
  const PageRequest request = {.num_pages = config.num_pages,
                               .kv_cache_memory_bytes = config.kv_cache_memory_bytes,
                               .memory_utilization = config.memory_utilization,
                               .page_tokens = config.runner.page_tokens,
                               .max_model_len = config.runner.max_model_len};
  ASSIGN_OR_RETURN(const int32_t pages, SizePages(rooms, request));
  RETURN_IF_ERROR(executor->AllocateCache(
      pages, [this](int32_t done, int32_t total) { console_.Progress(kCapturing, done, total); }));
  console_.EndProgress();
  console_.Say(MemoryReport(executor->memory().at(0), pages, config.runner));
  return server_->SetExecutor(std::move(executor), pages);
}

void ControllerProcess::FeedCluster() {
  while (true) {
    absl::StatusOr<ReadyGroup> group = hub_->WaitForGroup();
    if (!group.ok()) return Fail(group.status());
    const absl::Status status = TakeGroup(*std::move(group));
    if (status.ok()) {
      SayReady();
      continue;
    }
    bool first = false;
    {
      std::lock_guard lock(mu_);
      first = !was_ready_;
    }
    if (first) return Fail(status);
    console_.Say(absl::StrCat("the new group failed its self-test: ", std::string(status.message()),
                              "; waiting for the next"));
  }
}

absl::Status ControllerProcess::TakeGroup(ReadyGroup group) {
  console_.EndProgress();
  console_.Say(WorldTable(group.info.ranks));
  if (!group.info.ranks.empty()) {
    console_.Say(
        MemoryReport(group.info.ranks[0].memory, group.info.num_pages, options_.config.runner));
  }
  return server_->SetExecutor(std::move(group.executor), group.info.num_pages);
}

void ControllerProcess::SayReady() {
  double load_seconds = 0;
  {
    std::lock_guard lock(mu_);
    was_ready_ = true;
    if (load_started_.has_value()) load_seconds = SecondsSince(*load_started_);
    load_started_.reset();
  }
  const std::string address = absl::StrCat(options_.server.host, ":", server_->port());
  console_.SayPlain(absl::StrFormat("Ready: grpc://%s model=%s in %.1f s (load %.1f)", address,
                                    options_.config.model.name, SecondsSince(started_),
                                    load_seconds));
}

bool ControllerProcess::ending() { return stopping_ || !failure_.ok(); }

void ControllerProcess::WaitForTheEnd() {
  meter_.Update(server_->stats(), MonotonicNow());
  std::unique_lock lock(mu_);
  while (!changed_.wait_for(lock, kThroughputEvery, [this] { return ending(); })) {
    lock.unlock();
    const EngineStats stats = server_->stats();
    const Throughput throughput = meter_.Update(stats, MonotonicNow());
    if (throughput.busy) console_.Say(ThroughputLine(throughput, stats));
    lock.lock();
  }
}

absl::Status ControllerProcess::Finish() {
  absl::Status failure;
  bool ready = false;
  bool stuck = false;
  {
    std::lock_guard lock(mu_);
    failure = failure_;
    ready = was_ready_;
    stuck = loading_locally_;
  }
  console_.EndProgress();
  if (failure.ok() && ready) {
    console_.Say(absl::StrCat("Draining: ", server_->running_calls(), " requests run, up to ",
                              absl::FormatDuration(options_.shutdown_timeout),
                              " for them; a second signal ends at once"));
    if (!server_->Drain(options_.shutdown_timeout)) {
      console_.Say("Some requests did not end in time (--shutdown-timeout) and were ended");
    }
  } else if (failure.ok()) {
    // A start that is cut short is not a loss: its self-test ends before its executor goes.
    server_->Drain(absl::ZeroDuration());
  }
  if (hub_ != nullptr)
    hub_->Shutdown(failure.ok() ? "the controller shuts down" : "the controller failed");
  // A load in this process cannot be interrupted: the caller ends the process.
  if (stuck) {
    feeder_.detach();
    return absl::CancelledError("stopped while loading");
  }
  feeder_.join();
  server_.reset();
  return failure;
}

void ControllerProcess::Fail(absl::Status status) {
  std::lock_guard lock(mu_);
  // What comes after a stop is its consequence.
  if (ending()) return;
  failure_ = std::move(status);
  changed_.notify_all();
}

void ControllerProcess::OnWaitingForWorkers(int32_t present, int32_t world) {
  console_.Say(absl::StrCat("Waiting for workers: ", present, " of ", world, " are here"));
}

void ControllerProcess::OnLoading(int64_t bytes_done, int64_t bytes_total) {
  {
    std::lock_guard lock(mu_);
    if (!load_started_.has_value()) load_started_ = Clock::now();
  }
  console_.Progress(kLoading, bytes_done, bytes_total);
}

void ControllerProcess::OnReady(const GroupInfo& info) { console_.EndProgress(); }

void ControllerProcess::OnLost(int32_t rank, const absl::Status& reason) {
  console_.EndProgress();
  console_.Say(absl::StrCat("Lost the group", rank >= 0 ? absl::StrCat(" by rank ", rank) : "",
                            ": ", std::string(reason.message()),
                            "; not serving until enough workers dial in again"));
}

void ControllerProcess::OnNotice(const std::string& line) { console_.Say(line); }

}  // namespace millrace
