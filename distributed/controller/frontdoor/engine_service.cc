#include "distributed/controller/frontdoor/engine_service.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/controller/frontdoor/generate_call.h"
#include "distributed/controller/frontdoor/model_info.h"
#include "distributed/wire/error_details.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;
namespace common = ::smg::grpc::common;

constexpr size_t kChunkBytes = 64 << 10;
constexpr int32_t kMaxAbortIds = 1024;

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

absl::Status NotBuilt(const char* what) {
  return absl::UnimplementedError(absl::StrCat(what, " is not supported by this server"));
}

int32_t Saturate(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, 0, INT32_MAX));
}

// Streams an archive that other calls may stream too. Owned by gRPC until OnDone.
class BundleWriter final : public grpc::ServerWriteReactor<common::GetTokenizerChunk> {
 public:
  // Once, after the bundle is there.
  void Send(std::shared_ptr<const TokenizerBundle> bundle) {
    bundle_ = std::move(bundle);
    Next();
  }
  void Refuse(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    const size_t size = std::min(kChunkBytes, bundle_->zip.size() - offset_);
    chunk_.set_data(bundle_->zip.substr(offset_, size));
    offset_ += size;
    if (offset_ < bundle_->zip.size()) return StartWrite(&chunk_);
    chunk_.set_sha256(bundle_->sha256_hex);
    StartWriteAndFinish(&chunk_, grpc::WriteOptions(), grpc::Status::OK);
  }

  std::shared_ptr<const TokenizerBundle> bundle_;
  size_t offset_ = 0;
  common::GetTokenizerChunk chunk_;
};

class RefusedEvents final : public grpc::ServerWriteReactor<common::KvEventBatch> {
 public:
  RefusedEvents() { Finish(ToGrpcStatus(NotBuilt("SubscribeKvEvents"))); }
  void OnDone() override { delete this; }
};

}  // namespace

EngineService::EngineService(FrontDoor& door) : door_(door), started_(MonotonicNow()) {}

grpc::ServerWriteReactor<pb::GenerateResponse>* EngineService::Generate(
    grpc::CallbackServerContext* context, const pb::GenerateRequest* request) {
  return GenerateCall::Start(door_, context, *request);
}

grpc::ServerUnaryReactor* EngineService::Abort(grpc::CallbackServerContext* context,
                                               const pb::AbortRequest* request,
                                               pb::AbortResponse* response) {
  if (request->request_ids_size() == 0) {
    return Answer(context, InvalidField("request_ids", "is empty"));
  }
  if (request->request_ids_size() > kMaxAbortIds) {
    return Answer(context,
                  InvalidField("request_ids", absl::StrCat("has ", request->request_ids_size(),
                                                           " ids, the limit is ", kMaxAbortIds)));
  }
  const std::vector<std::string> ids(request->request_ids().begin(), request->request_ids().end());
  const std::vector<std::string> unknown = door_.calls->Abort(ids);
  if (unknown.empty()) return Answer(context, absl::OkStatus());
  // Ids come from clients: only their number is repeated.
  return Answer(context, WithReason(absl::NotFoundError(absl::StrCat(
                                        "request_ids: ", unknown.size(), " of ", ids.size(),
                                        " ids are not running here; the others were aborted")),
                                    kReasonUnknownRequest));
}

grpc::ServerUnaryReactor* EngineService::HealthCheck(grpc::CallbackServerContext* context,
                                                     const pb::HealthCheckRequest* request,
                                                     pb::HealthCheckResponse* response) {
  const absl::Status status = door_.readiness->status();
  response->set_healthy(status.ok());
  response->set_message(status.ok() ? "serving" : std::string(status.message()));
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* EngineService::GetModelInfo(grpc::CallbackServerContext* context,
                                                      const pb::GetModelInfoRequest* request,
                                                      pb::GetModelInfoResponse* response) {
  FillModelInfo(door_.model(), *response);
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* EngineService::GetServerInfo(grpc::CallbackServerContext* context,
                                                       const pb::GetServerInfoRequest* request,
                                                       pb::GetServerInfoResponse* response) {
  FillServerInfo(door_.model(), *response);
  response->set_active_requests(static_cast<uint32_t>(door_.calls->running()));
  response->set_is_paused(!door_.readiness->serving());
  response->set_last_receive_timestamp(door_.last_receive_unix);
  response->set_uptime_seconds(SecondsBetween(started_, MonotonicNow()));
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* EngineService::GetLoads(grpc::CallbackServerContext* context,
                                                  const pb::GetLoadsRequest* request,
                                                  pb::GetLoadsResponse* response) {
  if (request->has_dp_rank() && request->dp_rank() != 0) {
    return Answer(context, InvalidField("dp_rank", absl::StrCat("is ", request->dp_rank(),
                                                                ", the only rank is 0")));
  }
  response->set_timestamp(absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone()));
  response->set_version(door_.model().version);
  response->set_dp_rank_count(1);
  FillLoad(*response->add_loads());
  return Answer(context, absl::OkStatus());
}

void EngineService::FillLoad(pb::SchedulerLoad& load) {
  const EngineStats stats = door_.engine->Stats();
  const SchedulerStats& s = stats.scheduler;
  Throughput throughput;
  {
    std::lock_guard lock(mu_);
    throughput = meter_.Update(stats, MonotonicNow());
  }
  const int64_t block = door_.model().block_size;
  const double usage = s.pages_total > 0 ? static_cast<double>(s.pages_used) / s.pages_total : 0;
  // One entry for all groups, like the sums in SchedulerStats.
  const int32_t slots = door_.model().max_num_seqs * door_.model().data_parallel_size;
  load.set_dp_rank(0);
  load.set_num_running_reqs(s.running);
  load.set_num_waiting_reqs(s.waiting);
  load.set_num_total_reqs(s.running + s.waiting);
  load.set_num_used_tokens(Saturate(s.pages_used * block));
  load.set_max_total_num_tokens(Saturate(s.pages_total * block));
  load.set_token_usage(usage);
  load.set_gen_throughput(throughput.generated_tokens_per_second);
  load.set_cache_hit_rate(throughput.prefix_hit_rate);
  load.set_utilization(slots > 0 ? static_cast<double>(s.running) / slots : 0);
  load.set_max_running_requests(slots);
  load.set_num_waiting_uncached_tokens(Saturate(s.waiting_tokens));
}

absl::StatusOr<std::shared_ptr<const TokenizerBundle>> EngineService::Bundle() {
  std::lock_guard lock(mu_);
  if (bundle_ == nullptr) {
    ASSIGN_OR_RETURN(TokenizerBundle built, BuildTokenizerBundle(door_.model().tokenizer_path));
    bundle_ = std::make_shared<const TokenizerBundle>(std::move(built));
  }
  return bundle_;
}

grpc::ServerWriteReactor<common::GetTokenizerChunk>* EngineService::GetTokenizer(
    grpc::CallbackServerContext* context, const common::GetTokenizerRequest* request) {
  auto* writer = new BundleWriter();
  const bool posted = door_.admission_pool->TryPost([this, writer] {
    const auto bundle = Bundle();
    if (bundle.ok()) {
      writer->Send(*bundle);
    } else {
      writer->Refuse(bundle.status());
    }
  });
  if (!posted) writer->Refuse(absl::ResourceExhaustedError("the server is busy; try again"));
  return writer;
}

grpc::ServerUnaryReactor* EngineService::FlushCache(grpc::CallbackServerContext* context,
                                                    const common::FlushCacheRequest* request,
                                                    common::FlushCacheResponse* response) {
  if (!(request->timeout_s() >= 0) || std::isinf(request->timeout_s())) {
    return Answer(context, InvalidField("timeout_s", "must be a number of seconds, 0 or more"));
  }
  const absl::Status ready = door_.readiness->status();
  if (!ready.ok()) return Answer(context, ready);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool posted = door_.admission_pool->TryPost([this, reactor, response] {
    door_.engine->FlushPrefixCache();
    response->set_success(true);
    response->set_message("the prefix cache is empty; running requests keep their pages");
    reactor->Finish(grpc::Status::OK);
  });
  if (!posted) {
    reactor->Finish(ToGrpcStatus(absl::ResourceExhaustedError("the server is busy; try again")));
  }
  return reactor;
}

grpc::ServerUnaryReactor* EngineService::Embed(grpc::CallbackServerContext* context,
                                               const pb::EmbedRequest* request,
                                               pb::EmbedResponse* response) {
  return Answer(context, NotBuilt("Embed"));
}

grpc::ServerUnaryReactor* EngineService::StartProfile(grpc::CallbackServerContext* context,
                                                      const common::StartProfileRequest* request,
                                                      common::ProfileResponse* response) {
  return Answer(context, NotBuilt("StartProfile"));
}

grpc::ServerUnaryReactor* EngineService::StopProfile(grpc::CallbackServerContext* context,
                                                     const common::StopProfileRequest* request,
                                                     common::ProfileResponse* response) {
  return Answer(context, NotBuilt("StopProfile"));
}

grpc::ServerWriteReactor<common::KvEventBatch>* EngineService::SubscribeKvEvents(
    grpc::CallbackServerContext* context, const common::SubscribeKvEventsRequest* request) {
  return new RefusedEvents();
}

}  // namespace millrace
