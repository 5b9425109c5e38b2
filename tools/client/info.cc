#include "tools/client/info.h"

#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "distributed/wire/error_details.h"
#include "google/protobuf/text_format.h"
#include "grpcpp/client_context.h"
#include "kernels/core/status.h"
#include "proto/health.grpc.pb.h"
#include "proto/vllm_engine.grpc.pb.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;
namespace health = ::grpc::health::v1;

// Without a timeout of the user's these quick questions still end.
constexpr absl::Duration kPatience = absl::Seconds(10);

template <typename Stub, typename Request, typename Response>
absl::Status Ask(Stub& stub, absl::Duration timeout,
                 grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                 const Request& request, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(std::min(timeout, kPatience)));
  return FromGrpcStatus((stub.*method)(&context, request, response));
}

void Print(const std::string& title, const google::protobuf::Message& message, std::ostream& out) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  out << title << "\n" << text;
}

}  // namespace

absl::StatusOr<pb::GetModelInfoResponse> AskModelInfo(const std::shared_ptr<grpc::Channel>& channel,
                                                      absl::Duration timeout) {
  pb::VllmEngine::Stub stub(channel);
  pb::GetModelInfoResponse model;
  RETURN_IF_ERROR(
      Ask(stub, timeout, &pb::VllmEngine::Stub::GetModelInfo, pb::GetModelInfoRequest(), &model));
  return model;
}

absl::Status ShowInfo(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout,
                      std::ostream& out) {
  pb::VllmEngine::Stub stub(channel);
  ASSIGN_OR_RETURN(const pb::GetModelInfoResponse model, AskModelInfo(channel, timeout));
  pb::GetServerInfoResponse server;
  RETURN_IF_ERROR(Ask(stub, timeout, &pb::VllmEngine::Stub::GetServerInfo,
                      pb::GetServerInfoRequest(), &server));
  pb::GetLoadsResponse loads;
  RETURN_IF_ERROR(
      Ask(stub, timeout, &pb::VllmEngine::Stub::GetLoads, pb::GetLoadsRequest(), &loads));
  Print("# model", model, out);
  Print("# server", server, out);
  Print("# load", loads, out);
  return absl::OkStatus();
}

absl::Status ShowHealth(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout,
                        std::ostream& out) {
  health::Health::Stub stub(channel);
  health::HealthCheckRequest request;
  request.set_service("vllm.grpc.engine.VllmEngine");
  health::HealthCheckResponse response;
  RETURN_IF_ERROR(Ask(stub, timeout, &health::Health::Stub::Check, request, &response));
  if (response.status() == health::HealthCheckResponse::SERVING) {
    out << "serving" << std::endl;
    return absl::OkStatus();
  }
  pb::VllmEngine::Stub engine(channel);
  pb::HealthCheckResponse own;
  RETURN_IF_ERROR(
      Ask(engine, timeout, &pb::VllmEngine::Stub::HealthCheck, pb::HealthCheckRequest(), &own));
  return WithReason(absl::UnavailableError(absl::StrCat("not serving: ", own.message())),
                    kReasonLoading);
}

}  // namespace millrace
