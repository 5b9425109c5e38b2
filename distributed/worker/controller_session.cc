#include "distributed/worker/controller_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/session/handshake.h"
#include "kernels/core/status.h"

namespace millrace {

ControllerSession::ControllerSession(std::shared_ptr<grpc::Channel> channel, std::string secret,
                                     std::string hello, Handler* handler)
    : channel_(std::move(channel)),
      secret_(std::move(secret)),
      hello_(std::move(hello)),
      handler_(handler),
      heard_(absl::Now()) {}

std::shared_ptr<ControllerSession> ControllerSession::Create(std::shared_ptr<grpc::Channel> channel,
                                                             std::string secret,
                                                             const worker::WorkerMessage& hello,
                                                             Handler* handler) {
  return std::shared_ptr<ControllerSession>(new ControllerSession(
      std::move(channel), std::move(secret), hello.SerializeAsString(), handler));
}

void ControllerSession::Start() {
  const absl::StatusOr<std::string> nonce = RandomBytes(kNonceBytes);
  if (nonce.ok()) {
    nonce_ = *nonce;
    worker::Frame frame;
    frame.set_nonce(nonce_);
    queue_.PushFrame(std::move(frame));
  } else {
    Fail(nonce.status());
  }
  worker::WorkerHub::NewStub(channel_)->async()->Session(&context_, this);
  AddHold();
  StartRead(&incoming_);
  StartCall();
  Pump();
}

void ControllerSession::Send(const worker::WorkerMessage& message) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (phase_ != Phase::kOpen) return;
    queue_.PushMessage(std::make_shared<const std::string>(message.SerializeAsString()));
  }
  Pump();
}

absl::Duration ControllerSession::Silence() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return absl::Now() - heard_;
}

// The write itself happens outside the lock; `writing_` keeps it the only one.
void ControllerSession::Pump() {
  bool write = false;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (writing_ || reads_over_) return;
    if (!queue_.empty()) {
      queue_.Pop(&outgoing_);
      write = true;
    } else if (hang_up_) {
      hang_up_ = false;
    } else {
      return;
    }
    writing_ = true;
  }
  if (write) {
    StartWrite(&outgoing_);
  } else {
    StartWritesDone();
  }
}

void ControllerSession::HangUp() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (phase_ != Phase::kOpen) return;
    phase_ = Phase::kEnding;
    queue_.Clear();
    hang_up_ = true;
  }
  Pump();
}

void ControllerSession::OnWriteDone(bool ok) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    writing_ = false;
    if (!ok) queue_.Clear();
  }
  Pump();
  LetGoWhenIdle();
}

void ControllerSession::LetGoWhenIdle() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (!reads_over_ || writing_ || !holding_) return;
    holding_ = false;
  }
  RemoveHold();
}

void ControllerSession::OnReadDone(bool ok) {
  if (ok) {
    const absl::Status status = OnFrame(std::move(incoming_));
    if (status.ok()) {
      StartRead(&incoming_);
      return;
    }
    Fail(status);
  }
  {
    const std::lock_guard<std::mutex> lock(mu_);
    reads_over_ = true;
    phase_ = Phase::kEnding;
  }
  LetGoWhenIdle();
}

void ControllerSession::Fail(const absl::Status& status) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (error_.ok()) error_ = status;
    phase_ = Phase::kEnding;
  }
  context_.TryCancel();
}

absl::Status ControllerSession::OnFrame(worker::Frame frame) {
  bool challenge = false;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    heard_ = absl::Now();
    challenge = phase_ == Phase::kChallenge;
  }
  if (challenge) {
    RETURN_IF_ERROR(OnChallenge(frame));
    Pump();
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<std::string>> bytes = assembler_.Add(std::move(frame));
  if (!bytes.ok()) return bytes.status();
  if (!bytes->has_value()) return absl::OkStatus();
  worker::ControllerMessage message;
  if (!message.ParseFromString(**bytes)) {
    return absl::InternalError("the controller sent a message that cannot be read");
  }
  const bool last = message.has_refused() || message.has_reform() || message.has_shutdown();
  handler_->OnMessage(std::move(message));
  if (last) HangUp();  // the controller waits for that before it closes the connection
  return absl::OkStatus();
}

absl::Status ControllerSession::OnChallenge(const worker::Frame& frame) {
  if (frame.nonce().size() != kNonceBytes) {
    return absl::UnauthenticatedError("the controller's challenge has the wrong size");
  }
  ASSIGN_OR_RETURN(const std::string want,
                   MakeProof(secret_, SessionRole::kController, nonce_, frame.nonce()));
  if (!SameProof(want, frame.proof())) {
    return absl::UnauthenticatedError("the controller does not know this cluster secret");
  }
  worker::Frame answer;
  ASSIGN_OR_RETURN(*answer.mutable_proof(),
                   MakeProof(secret_, SessionRole::kWorker, nonce_, frame.nonce()));
  const std::lock_guard<std::mutex> lock(mu_);
  phase_ = Phase::kOpen;
  queue_.PushFrame(std::move(answer));
  queue_.PushMessage(std::make_shared<const std::string>(hello_));
  return absl::OkStatus();
}

void ControllerSession::OnDone(const grpc::Status& status) {
  absl::Status end;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    end = error_;
  }
  if (end.ok() && !status.ok()) {
    end = absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  handler_->OnEnd(end);  // nothing may follow
}

}  // namespace millrace
