// SamplingParams: proto <-> struct. Used by request_codec only.
#ifndef DISTRIBUTED_WIRE_SAMPLING_CODEC_H_
#define DISTRIBUTED_WIRE_SAMPLING_CODEC_H_

#include "absl/status/status.h"
#include "distributed/wire/client_request.h"
#include "distributed/wire/request_limits.h"
#include "proto/vllm_engine.pb.h"

namespace millrace {

// Fills sampling, text, n and truncate_prompt_tokens of `out`. Errors as RequestFromProto.
absl::Status SamplingFromProto(const vllm::grpc::engine::SamplingParams& proto,
                               const RequestLimits& limits, ClientRequest& out);

void SamplingToProto(const ClientRequest& request, vllm::grpc::engine::SamplingParams& out);

}  // namespace millrace

#endif  // DISTRIBUTED_WIRE_SAMPLING_CODEC_H_
