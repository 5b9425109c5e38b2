// One Generate call: checks and admits the request, then turns engine events into messages.
//
// Everything that touches gRPC or the choices happens in Pump(), which runs on one thread at a
// time: on the thread of a gRPC callback, or on the stream pool when the engine has news. The
// engine thread only appends to a queue. While a write is under way news gathers in the queue and
// becomes one message, so a slow reader costs bounded memory and nobody else's time.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_GENERATE_CALL_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_GENERATE_CALL_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "distributed/controller/frontdoor/choice_stream.h"
#include "distributed/controller/frontdoor/event_queue.h"
#include "distributed/controller/frontdoor/front_door.h"
#include "distributed/wire/client_request.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "proto/vllm_engine.pb.h"

namespace millrace {

class GenerateCall final : public grpc::ServerWriteReactor<vllm::grpc::engine::GenerateResponse>,
                           public LiveCall,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  // The reactor for gRPC; it lives until gRPC and the engine are both done with it.
  static GenerateCall* Start(FrontDoor& door, grpc::CallbackServerContext* context,
                             const vllm::grpc::engine::GenerateRequest& proto);

  GenerateCall(FrontDoor& door, grpc::CallbackServerContext* context);

  void Abort() override;
  void Tick(MonotonicTime now) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  class Sink;

  // Until the sequences are submitted.
  void Begin(const vllm::grpc::engine::GenerateRequest& proto);
  absl::Status Check(const vllm::grpc::engine::GenerateRequest& proto);
  void AdmitNowOrLater();
  void Admit();
  absl::Status Submit();
  void MakeChoices(const std::vector<int32_t>& prompt, const SamplingParams& sampling);

  // Any thread.
  void Enqueue(ChoiceEvent event);
  // The call is to end with `status`; the first such wish wins.
  void EndWith(absl::Status status);
  // Runs Pump() here, or lets the thread that runs it do another round.
  void PumpHere();
  bool ended_or_wished() const;

  // Inside the pump.
  void Pump();
  void PumpOnce();
  void Apply(const std::vector<ChoiceEvent>& events);
  void WriteNext();
  void WriteComplete(size_t choice);
  void FinishCall(const absl::Status& status);

  FrontDoor& door_;
  const MonotonicTime arrival_;
  ClientRequest request_;  // const after Begin, but for the prompt, which goes once submitted

  // The pump's.
  std::vector<ChoiceStream> choices_;
  std::vector<bool> completed_;
  size_t next_choice_ = 0;  // the first to be looked at for news
  absl::Status choice_error_;
  vllm::grpc::engine::GenerateResponse response_;

  mutable std::mutex mu_;                 // guards what follows
  grpc::CallbackServerContext* context_;  // null once gRPC is done
  std::shared_ptr<GenerateCall> self_;    // until OnDone
  EventQueue queue_;
  std::vector<SequenceId> sequences_;  // submitted
  std::optional<absl::Status> wish_;
  bool registered_ = false;
  bool aborted_ = false;
  bool pumping_ = false;
  bool again_ = false;
  bool writing_ = false;
  bool finished_ = false;  // gRPC has the status
  MonotonicTime last_progress_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_GENERATE_CALL_H_
