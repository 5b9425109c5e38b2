// vllm.grpc.engine.VllmEngine over one engine.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_ENGINE_SERVICE_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_ENGINE_SERVICE_H_

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/controller/frontdoor/front_door.h"
#include "distributed/controller/frontdoor/throughput.h"
#include "distributed/controller/frontdoor/tokenizer_bundle.h"
#include "proto/vllm_engine.grpc.pb.h"

namespace millrace {

class EngineService final : public vllm::grpc::engine::VllmEngine::CallbackService {
 public:
  // `door` outlives the service and every call.
  explicit EngineService(FrontDoor& door);

  grpc::ServerWriteReactor<vllm::grpc::engine::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context,
      const vllm::grpc::engine::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const vllm::grpc::engine::AbortRequest* request,
                                  vllm::grpc::engine::AbortResponse* response) override;
  grpc::ServerUnaryReactor* HealthCheck(grpc::CallbackServerContext* context,
                                        const vllm::grpc::engine::HealthCheckRequest* request,
                                        vllm::grpc::engine::HealthCheckResponse* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(
      grpc::CallbackServerContext* context, const vllm::grpc::engine::GetModelInfoRequest* request,
      vllm::grpc::engine::GetModelInfoResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(
      grpc::CallbackServerContext* context, const vllm::grpc::engine::GetServerInfoRequest* request,
      vllm::grpc::engine::GetServerInfoResponse* response) override;
  grpc::ServerUnaryReactor* GetLoads(grpc::CallbackServerContext* context,
                                     const vllm::grpc::engine::GetLoadsRequest* request,
                                     vllm::grpc::engine::GetLoadsResponse* response) override;
  grpc::ServerWriteReactor<smg::grpc::common::GetTokenizerChunk>* GetTokenizer(
      grpc::CallbackServerContext* context,
      const smg::grpc::common::GetTokenizerRequest* request) override;
  grpc::ServerUnaryReactor* FlushCache(grpc::CallbackServerContext* context,
                                       const smg::grpc::common::FlushCacheRequest* request,
                                       smg::grpc::common::FlushCacheResponse* response) override;

  // Not built: UNIMPLEMENTED.
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const vllm::grpc::engine::EmbedRequest* request,
                                  vllm::grpc::engine::EmbedResponse* response) override;
  grpc::ServerUnaryReactor* StartProfile(grpc::CallbackServerContext* context,
                                         const smg::grpc::common::StartProfileRequest* request,
                                         smg::grpc::common::ProfileResponse* response) override;
  grpc::ServerUnaryReactor* StopProfile(grpc::CallbackServerContext* context,
                                        const smg::grpc::common::StopProfileRequest* request,
                                        smg::grpc::common::ProfileResponse* response) override;
  grpc::ServerWriteReactor<smg::grpc::common::KvEventBatch>* SubscribeKvEvents(
      grpc::CallbackServerContext* context,
      const smg::grpc::common::SubscribeKvEventsRequest* request) override;

 private:
  // Built at the first call and kept.
  absl::StatusOr<std::shared_ptr<const TokenizerBundle>> Bundle();
  void FillLoad(vllm::grpc::engine::SchedulerLoad& load);

  FrontDoor& door_;
  const MonotonicTime started_;
  std::mutex mu_;
  std::shared_ptr<const TokenizerBundle> bundle_;
  ThroughputMeter meter_;  // of GetLoads
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_ENGINE_SERVICE_H_
