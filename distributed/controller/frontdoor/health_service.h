// grpc.health.v1: "" is SERVING while the process answers, the engine's service while it can
// generate. Watch is a real stream: the state at once, then every change.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_HEALTH_SERVICE_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_HEALTH_SERVICE_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "proto/health.grpc.pb.h"

namespace millrace {

inline constexpr std::string_view kEngineServiceName = "vllm.grpc.engine.VllmEngine";

// Every method: any thread.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  HealthService();
  ~HealthService() override;

  // Tells the watchers too.
  void SetServing(std::string_view service, bool serving);
  // Ends every Watch, now and in the future.
  void Shutdown();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const grpc::health::v1::HealthListRequest* request,
                                 grpc::health::v1::HealthListResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  void Forget(Watcher* watcher);

  std::mutex mu_;
  std::map<std::string, Status> statuses_;
  absl::flat_hash_set<std::shared_ptr<Watcher>> watchers_;
  bool shut_down_ = false;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_HEALTH_SERVICE_H_
