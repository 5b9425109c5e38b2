// GenerateResponse: proto <-> struct.
#ifndef DISTRIBUTED_WIRE_RESPONSE_CODEC_H_
#define DISTRIBUTED_WIRE_RESPONSE_CODEC_H_

#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "distributed/wire/response.h"
#include "proto/vllm_engine.pb.h"

namespace millrace {

vllm::grpc::engine::GenerateResponse ChunkToProto(const ResponseChunk& chunk);
vllm::grpc::engine::GenerateResponse CompleteToProto(const ResponseComplete& complete);

// INTERNAL when the message is neither a chunk nor a complete, or its lists do not match.
absl::StatusOr<std::variant<ResponseChunk, ResponseComplete>> ResponseFromProto(
    const vllm::grpc::engine::GenerateResponse& proto);

// "stop", "length", "abort"; "error" for kError.
std::string_view FinishReasonName(FinishReason reason);

}  // namespace millrace

#endif  // DISTRIBUTED_WIRE_RESPONSE_CODEC_H_
