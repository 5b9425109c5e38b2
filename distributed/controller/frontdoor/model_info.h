// Facts about the model as GetModelInfo and GetServerInfo tell them.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_MODEL_INFO_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_MODEL_INFO_H_

#include "distributed/controller/frontdoor/served_model.h"
#include "proto/vllm_engine.pb.h"

namespace millrace {

void FillModelInfo(const ServedModel& model, vllm::grpc::engine::GetModelInfoResponse& out);
// What does not change while the server runs.
void FillServerInfo(const ServedModel& model, vllm::grpc::engine::GetServerInfoResponse& out);

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_MODEL_INFO_H_
