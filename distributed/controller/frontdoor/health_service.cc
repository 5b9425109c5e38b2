#include "distributed/controller/frontdoor/health_service.h"

#include <optional>
#include <utility>
#include <vector>

namespace millrace {
namespace {

namespace pb = ::grpc::health::v1;

}  // namespace

// One Watch stream. Writes one message at a time; states that pass while a write is under way are
// skipped, the last one is always sent.
class HealthService::Watcher final : public grpc::ServerWriteReactor<pb::HealthCheckResponse>,
                                     public std::enable_shared_from_this<Watcher> {
 public:
  Watcher(HealthService* service, std::string name) : service_(service), name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  // Pump() has to follow. Two calls, so that the service can set states under its own lock, in
  // order.
  void Want(Status status) {
    std::lock_guard lock(mu_);
    wanted_ = status;
  }

  void End(const grpc::Status& status) {
    {
      std::lock_guard lock(mu_);
      if (!end_.has_value()) end_ = status;
    }
    Pump();
  }

  void OnWriteDone(bool ok) override {
    {
      std::lock_guard lock(mu_);
      writing_ = false;
    }
    if (!ok) return End(grpc::Status::CANCELLED);
    Pump();
  }
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override { service_->Forget(this); }

  // gRPC is called without the lock, by one thread at a time.
  void Pump() {
    const std::shared_ptr<Watcher> keep = shared_from_this();
    {
      std::lock_guard lock(mu_);
      if (pumping_) return;  // the one who pumps decides again before it leaves
      pumping_ = true;
    }
    for (Act act = Decide(); act != Act::kNothing; act = Decide()) {
      if (act == Act::kWrite) StartWrite(&message_);
      if (act == Act::kFinish) Finish(*end_);
    }
  }

 private:
  enum class Act { kNothing, kWrite, kFinish };

  // The next thing to do; kNothing ends the pumping in the same breath.
  Act Decide() {
    std::lock_guard lock(mu_);
    if (!finished_ && end_.has_value()) {
      finished_ = true;
      return Act::kFinish;
    }
    if (!finished_ && !writing_ && wanted_.has_value() && wanted_ != sent_) {
      writing_ = true;
      sent_ = wanted_;
      message_.set_status(*wanted_);
      return Act::kWrite;
    }
    pumping_ = false;
    return Act::kNothing;
  }

  HealthService* const service_;
  const std::string name_;
  pb::HealthCheckResponse message_;  // the write's while writing_
  std::mutex mu_;
  std::optional<Status> wanted_;
  std::optional<Status> sent_;
  std::optional<grpc::Status> end_;
  bool writing_ = false;
  bool finished_ = false;
  bool pumping_ = false;
};

HealthService::HealthService() {
  statuses_[""] = pb::HealthCheckResponse::SERVING;
  statuses_[std::string(kEngineServiceName)] = pb::HealthCheckResponse::NOT_SERVING;
}

HealthService::~HealthService() = default;

void HealthService::SetServing(std::string_view service, bool serving) {
  const Status status =
      serving ? pb::HealthCheckResponse::SERVING : pb::HealthCheckResponse::NOT_SERVING;
  std::vector<std::shared_ptr<Watcher>> told;
  {
    std::lock_guard lock(mu_);
    statuses_[std::string(service)] = status;
    for (const auto& watcher : watchers_) {
      if (watcher->name() != service) continue;
      watcher->Want(status);
      told.push_back(watcher);
    }
  }
  for (const auto& watcher : told) watcher->Pump();
}

void HealthService::Shutdown() {
  std::vector<std::shared_ptr<Watcher>> ended;
  {
    std::lock_guard lock(mu_);
    shut_down_ = true;
    ended.assign(watchers_.begin(), watchers_.end());
  }
  for (const auto& watcher : ended) {
    watcher->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down"));
  }
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const pb::HealthCheckRequest* request,
                                               pb::HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::lock_guard lock(mu_);
  const auto it = statuses_.find(request->service());
  if (it == statuses_.end()) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "service: not served here"));
  } else {
    response->set_status(it->second);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerUnaryReactor* HealthService::List(grpc::CallbackServerContext* context,
                                              const pb::HealthListRequest* request,
                                              pb::HealthListResponse* response) {
  {
    std::lock_guard lock(mu_);
    for (const auto& [name, status] : statuses_) {
      (*response->mutable_statuses())[name].set_status(status);
    }
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<pb::HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* context, const pb::HealthCheckRequest* request) {
  auto watcher = std::make_shared<Watcher>(this, request->service());
  Status status = pb::HealthCheckResponse::SERVICE_UNKNOWN;
  bool ending = false;
  {
    std::lock_guard lock(mu_);
    const auto it = statuses_.find(request->service());
    if (it != statuses_.end()) status = it->second;
    watcher->Want(status);
    watchers_.insert(watcher);
    ending = shut_down_;
  }
  watcher->Pump();
  if (ending) watcher->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down"));
  return watcher.get();
}

void HealthService::Forget(Watcher* watcher) {
  std::shared_ptr<Watcher> last;  // destroyed without the lock
  std::lock_guard lock(mu_);
  last = watcher->shared_from_this();
  watchers_.erase(last);
}

}  // namespace millrace
