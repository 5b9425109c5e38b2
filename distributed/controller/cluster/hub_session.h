// One worker's stream as the controller sees it. Nothing but a nonce and a proof of fixed size is
// looked at before the peer has shown that it knows the cluster secret.
#ifndef DISTRIBUTED_CONTROLLER_CLUSTER_HUB_SESSION_H_
#define DISTRIBUTED_CONTROLLER_CLUSTER_HUB_SESSION_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/session/frames.h"
#include "proto/worker.grpc.pb.h"

namespace millrace {

// Any thread. Keeps itself alive until the stream is over.
class HubSession final : public std::enable_shared_from_this<HubSession>,
                         private grpc::ServerBidiReactor<worker::Frame, worker::Frame> {
 public:
  // Called from gRPC's threads, for each session one call at a time, in this order.
  class Owner {
   public:
    virtual ~Owner() = default;
    // The peer has proved itself; its first message.
    virtual void OnHello(const std::shared_ptr<HubSession>& session, worker::Hello hello) = 0;
    virtual void OnMessage(const std::shared_ptr<HubSession>& session,
                           worker::WorkerMessage message) = 0;
    // The last call, also for peers that never said hello.
    virtual void OnClosed(const std::shared_ptr<HubSession>& session,
                          const absl::Status& reason) = 0;
  };

  enum class Phase {
    kNonce,  // waits for the peer's nonce
    kProof,  // challenge sent, waits for the proof
    kHello,  // proved, waits for the hello
    kOpen,
    kClosing,
  };

  // gRPC's reactor of the call is the session itself.
  static std::shared_ptr<HubSession> Create(grpc::CallbackServerContext* context,
                                            const std::string& secret, Owner* owner);
  grpc::ServerBidiReactor<worker::Frame, worker::Frame>* reactor() { return this; }
  void Start();  // once

  void Send(const worker::ControllerMessage& message);
  void Send(std::shared_ptr<const std::string> message);  // serialized; shared between ranks
  // Ends the call with `reason` once everything sent before is out. Nothing is received any more.
  void Close(const absl::Status& reason);
  // As Close, but lets a worker that has been told to go hang up first: a connection that is closed
  // while the other side writes loses what it has not read yet.
  void Dismiss(const absl::Status& reason);
  // Breaks it off at once.
  void Cancel();

  Phase phase() const;
  bool ever_open() const;                            // has said hello
  absl::Duration Silence() const;                    // since anything was heard
  absl::Duration InPhase() const;                    // since phase() changed
  const std::string& peer() const { return peer_; }  // "ipv4:10.0.0.7:4711"

 private:
  HubSession(grpc::CallbackServerContext* context, std::string secret, Owner* owner);
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Pump();
  bool WantsMore() const;
  void HungUp();
  absl::Status OnFrame(worker::Frame frame);
  absl::Status OnNonce(const worker::Frame& frame);
  absl::Status OnProof(const worker::Frame& frame);
  absl::Status OnBody(worker::Frame frame);
  void Enter(Phase phase);  // REQUIRES: mu_ held

  // gRPC frees the context once OnDone returned, so OnDone and Cancel, which may come from another
  // thread at that moment, take this lock, and nothing else does.
  std::mutex context_mu_;
  grpc::CallbackServerContext* context_;  // guarded by context_mu_; null once OnDone ran
  const std::string secret_;
  Owner* const owner_;
  const std::string peer_;
  std::shared_ptr<HubSession> self_;
  worker::Frame incoming_;
  worker::Frame outgoing_;
  std::string worker_nonce_;      // reading thread
  std::string controller_nonce_;  // reading thread
  FrameAssembler assembler_;      // reading thread

  mutable std::mutex mu_;
  Phase phase_ = Phase::kNonce;  // guarded by mu_
  absl::Time phase_since_;       // guarded by mu_
  absl::Time heard_;             // guarded by mu_
  FrameQueue queue_;             // guarded by mu_
  bool writing_ = false;         // guarded by mu_
  bool broken_ = false;          // guarded by mu_: nothing can be written any more
  bool finished_ = false;        // guarded by mu_: Finish was called
  bool ever_open_ = false;       // guarded by mu_
  bool await_peer_ = false;      // guarded by mu_: it is to hang up first
  absl::Status reason_;          // guarded by mu_
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_CLUSTER_HUB_SESSION_H_
