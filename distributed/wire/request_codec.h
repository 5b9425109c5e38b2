// GenerateRequest: proto <-> struct.
#ifndef DISTRIBUTED_WIRE_REQUEST_CODEC_H_
#define DISTRIBUTED_WIRE_REQUEST_CODEC_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/wire/client_request.h"
#include "distributed/wire/request_limits.h"
#include "proto/vllm_engine.pb.h"

namespace millrace {

// Checks every field and takes it over. A field that is wrong, over its cap or not supported is an
// error that names it (BadRequest detail): INVALID_ARGUMENT, or UNIMPLEMENTED for structured
// output. Whether prompt and max_tokens fit together is only known after tokenization, and is not
// checked here, except that a token prompt beyond the context is refused unless it is truncated.
absl::StatusOr<ClientRequest> RequestFromProto(const vllm::grpc::engine::GenerateRequest& proto,
                                               const RequestLimits& limits);

// RequestFromProto(RequestToProto(r)) == r for every valid r.
vllm::grpc::engine::GenerateRequest RequestToProto(const ClientRequest& request);

}  // namespace millrace

#endif  // DISTRIBUTED_WIRE_REQUEST_CODEC_H_
