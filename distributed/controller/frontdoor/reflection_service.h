// grpc.reflection.v1 and v1alpha: lets grpcurl and the like list the services and read the protos.
// The library's own plugin would add itself to every server of the process, and knows v1alpha only.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_REFLECTION_SERVICE_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_REFLECTION_SERVICE_H_

#include <string>
#include <utility>
#include <vector>

#include "proto/reflection.grpc.pb.h"
#include "proto/reflection_v1alpha.grpc.pb.h"

namespace millrace {

// `Service`, `Request` and `Response` are those of one version.
template <typename Service, typename Request, typename Response>
class ReflectionServiceOf final : public Service::CallbackService {
 public:
  // Full names of what the server serves.
  explicit ReflectionServiceOf(std::vector<std::string> services)
      : services_(std::move(services)) {}

  grpc::ServerBidiReactor<Request, Response>* ServerReflectionInfo(
      grpc::CallbackServerContext* context) override;

 private:
  const std::vector<std::string> services_;
};

using ReflectionService = ReflectionServiceOf<grpc::reflection::v1::ServerReflection,
                                              grpc::reflection::v1::ServerReflectionRequest,
                                              grpc::reflection::v1::ServerReflectionResponse>;
using ReflectionServiceV1Alpha =
    ReflectionServiceOf<grpc::reflection::v1alpha::ServerReflection,
                        grpc::reflection::v1alpha::ServerReflectionRequest,
                        grpc::reflection::v1alpha::ServerReflectionResponse>;

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_REFLECTION_SERVICE_H_
