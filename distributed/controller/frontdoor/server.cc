#include "distributed/controller/frontdoor/server.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/controller/frontdoor/engine_service.h"
#include "distributed/controller/frontdoor/grpc_listener.h"
#include "distributed/controller/frontdoor/health_service.h"
#include "distributed/controller/frontdoor/reflection_service.h"
#include "distributed/controller/frontdoor/self_test.h"
#include "distributed/wire/error_details.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kMaxWaitingAdmissions = 256;
constexpr int64_t kMaxStreamTasks = int64_t{1} << 40;  // bounded by the number of calls
constexpr milliseconds kMaxTick{500};
// What clients get to fetch their last messages when the server ends.
constexpr std::chrono::seconds kFarewell{2};

absl::Status CheckOptions(const ServerOptions& options) {
  const bool has_tls = !options.tls.certificate.empty();
  if (has_tls != !options.tls.key.empty()) {
    return absl::InvalidArgumentError("TLS: give both --tls-cert and --tls-key");
  }
  if (!options.tls.client_ca.empty() && !has_tls) {
    return absl::InvalidArgumentError("TLS: --tls-client-ca needs --tls-cert and --tls-key");
  }
  if (!IsLoopback(options.host) && !has_tls && !options.allow_insecure) {
    return absl::InvalidArgumentError(
        absl::StrCat("--host=", options.host,
                     " is reachable from other machines and there is no TLS: give "
                     "--tls-cert and --tls-key, or --allow-insecure if the network is trusted"));
  }
  return absl::OkStatus();
}

std::vector<std::string> ServedNames() {
  return {std::string(kEngineServiceName), "grpc.health.v1.Health",
          "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"};
}

// The engine is there before its pages are known.
SchedulerConfig WithPlaceholderPages(SchedulerConfig config) {
  config.num_pages = config.max_model_len / std::max(config.page_tokens, 1) + 1;
  return config;
}

}  // namespace

class Server::Impl {
 public:
  Impl(ServerOptions options, ServedModel model)
      : options_(std::move(options)),
        model_(std::move(model)),
        metrics_({.prefix = options_.metrics_prefix,
                  .model_name = model_.name,
                  .block_size = model_.block_size}),
        readiness_([this](bool serving) { health_.SetServing(kEngineServiceName, serving); }),
        stream_pool_(options_.stream_threads, kMaxStreamTasks),
        admission_pool_(options_.admission_threads, kMaxWaitingAdmissions) {}

  ~Impl() {
    StopGrpc();
    {
      std::lock_guard lock(mu_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (housekeeping_.joinable()) housekeeping_.join();
    metrics_.SetStatsSource(nullptr);
    engine_.reset();
  }

  absl::Status Start() {
    RETURN_IF_ERROR(CheckOptions(options_));
    RETURN_IF_ERROR(MakeEngine());
    FillDoor();
    service_ = std::make_unique<EngineService>(door_);
    if (options_.metrics) {
      ASSIGN_OR_RETURN(metrics_port_, metrics_.Serve(options_.host, options_.metrics_port));
    }
    const ListenerOptions listen = {.host = options_.host,
                                    .port = options_.port,
                                    .certificate = options_.tls.certificate,
                                    .key = options_.tls.key,
                                    .client_ca = options_.tls.client_ca,
                                    .max_message_bytes = options_.max_message_bytes};
    std::vector<grpc::Service*> services = {service_.get(), &health_};
    if (options_.reflection) services.insert(services.end(), {&reflection_, &reflection_v1alpha_});
    ASSIGN_OR_RETURN(listener_, Listen(listen, services));
    housekeeping_ = std::thread([this] { KeepHouse(); });
    return absl::OkStatus();
  }

  absl::Status SetExecutor(std::unique_ptr<StepExecutor> executor, int32_t num_pages,
                           int32_t max_model_len) {
    if (max_model_len == 0) max_model_len = model_.max_model_len;
    RETURN_IF_ERROR(engine_->SetExecutor(std::move(executor), num_pages, max_model_len));
    ServeLength(max_model_len);
    RETURN_IF_ERROR(GenerateOneToken(*engine_, options_.self_test_timeout));
    readiness_.Set(ServerState::kServing);
    return absl::OkStatus();
  }

  bool Drain(absl::Duration timeout) {
    readiness_.Set(ServerState::kDraining);
    const bool finished = engine_->Drain(timeout);
    // The engine is done; the last messages are still being written.
    for (milliseconds waited{0}; waited < kFarewell && calls_.running() > 0;) {
      constexpr milliseconds kStep{5};
      std::this_thread::sleep_for(kStep);
      waited += kStep;
    }
    return finished && calls_.running() == 0;
  }

  int32_t port() const { return listener_.port; }
  int32_t metrics_port() const { return metrics_port_; }
  EngineStats stats() const { return engine_->Stats(); }
  int64_t running_calls() const { return calls_.running(); }
  const ServedModel& model() const { return door_.model(); }
  std::string metrics_text() const { return metrics_.Text(); }

 private:
  absl::Status MakeEngine() {
    EngineOptions options;
    options.scheduler = WithPlaceholderPages(options_.scheduler);
    options.on_step = [this](const StepObservation& step) { metrics_.OnStep(step); };
    options.on_executor_lost = [this](const absl::Status& status) { OnExecutorLost(status); };
    ASSIGN_OR_RETURN(engine_, Engine::Create(std::move(options)));
    metrics_.SetStatsSource([this] { return engine_->Stats(); });
    return absl::OkStatus();
  }

  void FillDoor() {
    door_.served.store(&model_);
    door_.engine = engine_.get();
    door_.metrics = &metrics_;
    door_.readiness = &readiness_;
    door_.calls = &calls_;
    door_.stream_pool = &stream_pool_;
    door_.admission_pool = &admission_pool_;
    door_.limits = options_.limits;
    door_.seed = options_.seed;
  }

  // Calls may still look at what was served before, so that stays.
  void ServeLength(int32_t max_model_len) {
    std::lock_guard lock(mu_);
    if (door_.model().max_model_len == max_model_len) return;
    auto changed = std::make_unique<ServedModel>(model_);
    changed->max_model_len = max_model_len;
    door_.served.store(changed.get());
    changed_models_.push_back(std::move(changed));
  }

  void OnExecutorLost(const absl::Status& status) {
    readiness_.Set(ServerState::kWorkerLost, std::string(status.message()));
    metrics_.OnWorkerLost(GetErrorFacts(AddEngineFacts(status)).rank);
    if (options_.on_executor_lost) options_.on_executor_lost(status);
  }

  void StopGrpc() {
    if (listener_.server == nullptr) return;
    health_.Shutdown();
    listener_.server->Shutdown(std::chrono::system_clock::now() + kFarewell);
    listener_.server->Wait();
    listener_.server.reset();
  }

  void KeepHouse() {
    const milliseconds tick = std::clamp<milliseconds>(options_.limits.slow_reader_timeout / 4,
                                                       milliseconds(20), kMaxTick);
    std::unique_lock lock(mu_);
    while (!changed_.wait_for(lock, tick, [this] { return stopping_; })) {
      lock.unlock();
      calls_.TickAll(MonotonicNow());
      // An executor may be lost in the moment in which SetExecutor() declares it ready.
      if (readiness_.serving() && !engine_->Stats().has_executor) {
        readiness_.Set(ServerState::kWorkerLost, "no complete group of workers is running");
      }
      lock.lock();
    }
  }

  const ServerOptions options_;
  const ServedModel model_;                                         // as it was given
  std::vector<std::unique_ptr<const ServedModel>> changed_models_;  // guarded by mu_
  Metrics metrics_;
  HealthService health_;
  ReflectionService reflection_{ServedNames()};
  ReflectionServiceV1Alpha reflection_v1alpha_{ServedNames()};
  Readiness readiness_;
  LiveCalls calls_;
  FrontDoor door_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EngineService> service_;
  TaskPool stream_pool_;
  TaskPool admission_pool_;
  Listener listener_;
  int32_t metrics_port_ = 0;

  std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread housekeeping_;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options, ServedModel model) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(model));
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

absl::Status Server::SetExecutor(std::unique_ptr<StepExecutor> executor, int32_t num_pages,
                                 int32_t max_model_len) {
  return impl_->SetExecutor(std::move(executor), num_pages, max_model_len);
}
bool Server::Drain(absl::Duration timeout) { return impl_->Drain(timeout); }
int32_t Server::port() const { return impl_->port(); }
int32_t Server::metrics_port() const { return impl_->metrics_port(); }
EngineStats Server::stats() const { return impl_->stats(); }
int64_t Server::running_calls() const { return impl_->running_calls(); }
const ServedModel& Server::model() const { return impl_->model(); }
std::string Server::metrics_text() const { return impl_->metrics_text(); }

}  // namespace millrace
