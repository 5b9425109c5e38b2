// A worker's stream to its controller: mutual proof of the secret, then messages both ways.
#ifndef DISTRIBUTED_WORKER_CONTROLLER_SESSION_H_
#define DISTRIBUTED_WORKER_CONTROLLER_SESSION_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/session/frames.h"
#include "proto/worker.grpc.pb.h"

namespace millrace {

// Any thread. Once started it must be kept until OnEnd was called, and its last owner must not be a
// thread of gRPC's: with the session goes its channel, and the last channel of a process joins
// gRPC's threads.
class ControllerSession final : private grpc::ClientBidiReactor<worker::Frame, worker::Frame> {
 public:
  // Called from gRPC's threads, one call at a time; must not block.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(worker::ControllerMessage message) = 0;
    // Last call; the session may be destroyed as soon as this begins. UNAUTHENTICATED: the
    // controller does not know the secret, or does not believe that we do; UNAVAILABLE: the stream
    // broke; OK: the controller closed it.
    virtual void OnEnd(const absl::Status& status) = 0;
  };

  // `hello` is sent once the controller has proved itself. `handler` must live until OnEnd.
  static std::shared_ptr<ControllerSession> Create(std::shared_ptr<grpc::Channel> channel,
                                                   std::string secret,
                                                   const worker::WorkerMessage& hello,
                                                   Handler* handler);
  // Once. Nothing happens before.
  void Start();

  void Send(const worker::WorkerMessage& message);
  // Since anything was heard of the controller.
  absl::Duration Silence() const;
  // Breaks the stream off; OnEnd follows.
  void Cancel() { context_.TryCancel(); }

 private:
  enum class Phase { kChallenge, kOpen, kEnding };

  ControllerSession(std::shared_ptr<grpc::Channel> channel, std::string secret, std::string hello,
                    Handler* handler);
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnWritesDoneDone(bool ok) override { OnWriteDone(ok); }
  void OnDone(const grpc::Status& status) override;

  void Pump();  // REQUIRES: mu_ not held
  absl::Status OnFrame(worker::Frame frame);
  absl::Status OnChallenge(const worker::Frame& frame);
  void Fail(const absl::Status& status);
  void HangUp();         // nothing more is sent
  void LetGoWhenIdle();  // of gRPC's hold, once nothing is being written

  const std::shared_ptr<grpc::Channel> channel_;
  const std::string secret_;
  const std::string hello_;
  Handler* const handler_;
  grpc::ClientContext context_;
  std::string nonce_;
  worker::Frame incoming_;
  worker::Frame outgoing_;
  FrameAssembler assembler_;  // reading thread

  mutable std::mutex mu_;
  Phase phase_ = Phase::kChallenge;  // guarded by mu_
  FrameQueue queue_;                 // guarded by mu_
  bool writing_ = false;             // guarded by mu_
  bool hang_up_ = false;             // guarded by mu_: to be done when nothing is being written
  bool reads_over_ = false;          // guarded by mu_
  bool holding_ = true;              // guarded by mu_
  absl::Time heard_;                 // guarded by mu_
  absl::Status error_;               // guarded by mu_
};

}  // namespace millrace

#endif  // DISTRIBUTED_WORKER_CONTROLLER_SESSION_H_
