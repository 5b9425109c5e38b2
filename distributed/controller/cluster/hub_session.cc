#include "distributed/controller/cluster/hub_session.h"

#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "distributed/session/handshake.h"
#include "kernels/core/status.h"

namespace millrace {

HubSession::HubSession(grpc::CallbackServerContext* context, std::string secret, Owner* owner)
    : context_(context),
      secret_(std::move(secret)),
      owner_(owner),
      peer_(context->peer()),
      phase_since_(absl::Now()),
      heard_(absl::Now()) {}

std::shared_ptr<HubSession> HubSession::Create(grpc::CallbackServerContext* context,
                                               const std::string& secret, Owner* owner) {
  std::shared_ptr<HubSession> session(new HubSession(context, secret, owner));
  session->self_ = session;
  return session;
}

void HubSession::Start() { StartRead(&incoming_); }

void HubSession::Enter(Phase phase) {
  phase_ = phase;
  phase_since_ = absl::Now();
}

void HubSession::Send(const worker::ControllerMessage& message) {
  Send(std::make_shared<const std::string>(message.SerializeAsString()));
}

void HubSession::Send(std::shared_ptr<const std::string> message) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (phase_ != Phase::kOpen && phase_ != Phase::kHello) return;
    queue_.PushMessage(std::move(message));
  }
  Pump();
}

void HubSession::Close(const absl::Status& reason) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (phase_ == Phase::kClosing) return;
    Enter(Phase::kClosing);
    reason_ = reason;
  }
  Pump();
}

void HubSession::Dismiss(const absl::Status& reason) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (phase_ == Phase::kClosing) return;
    await_peer_ = ever_open_ && !broken_;
    Enter(Phase::kClosing);
    reason_ = reason;
  }
  Pump();
}

void HubSession::HungUp() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    await_peer_ = false;
  }
  Pump();
}

bool HubSession::WantsMore() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return phase_ != Phase::kClosing || await_peer_;
}

void HubSession::Cancel() {
  Close(absl::CancelledError("broken off"));
  const std::lock_guard<std::mutex> lock(context_mu_);
  if (context_ != nullptr) context_->TryCancel();
}

HubSession::Phase HubSession::phase() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return phase_;
}

bool HubSession::ever_open() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return ever_open_;
}

absl::Duration HubSession::Silence() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return absl::Now() - heard_;
}

absl::Duration HubSession::InPhase() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return absl::Now() - phase_since_;
}

// Writes the next frame, or finishes a session that is closing and has nothing left to write. gRPC
// is called outside the lock: `writing_` and `finished_` keep these calls the only ones.
void HubSession::Pump() {
  bool write = false;
  absl::Status end;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (writing_ || finished_) return;
    if (broken_) queue_.Clear();
    if (!queue_.empty()) {
      queue_.Pop(&outgoing_);
      write = writing_ = true;
    } else if (phase_ == Phase::kClosing && !await_peer_) {
      finished_ = true;
      end = reason_;
    } else {
      return;
    }
  }
  if (write) {
    StartWrite(&outgoing_);
  } else {
    Finish(grpc::Status(static_cast<grpc::StatusCode>(end.code()), std::string(end.message())));
  }
}

void HubSession::OnWriteDone(bool ok) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    writing_ = false;
    if (!ok) broken_ = true;
  }
  Pump();
}

void HubSession::OnReadDone(bool ok) {
  const absl::Status status =
      ok ? OnFrame(std::move(incoming_)) : absl::UnavailableError("the connection broke");
  if (!status.ok()) {
    Close(status);
    HungUp();
    return;
  }
  if (WantsMore()) StartRead(&incoming_);
}

void HubSession::OnCancel() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    broken_ = true;
  }
  Close(absl::UnavailableError("the connection broke"));
  HungUp();
}

void HubSession::OnDone() {
  {
    const std::lock_guard<std::mutex> lock(context_mu_);
    context_ = nullptr;
  }
  absl::Status reason;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    reason = reason_;
  }
  owner_->OnClosed(self_, reason);
  self_.reset();  // maybe the last reference: nothing may follow
}

absl::Status HubSession::OnFrame(worker::Frame frame) {
  Phase now;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    heard_ = absl::Now();
    now = phase_;
  }
  switch (now) {
    case Phase::kNonce:
      return OnNonce(frame);
    case Phase::kProof:
      return OnProof(frame);
    case Phase::kHello:
    case Phase::kOpen:
      return OnBody(std::move(frame));
    case Phase::kClosing:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status HubSession::OnNonce(const worker::Frame& frame) {
  if (frame.nonce().size() != kNonceBytes || !frame.body().empty() || !frame.proof().empty()) {
    return absl::UnauthenticatedError("no handshake");
  }
  worker_nonce_ = frame.nonce();
  ASSIGN_OR_RETURN(controller_nonce_, RandomBytes(kNonceBytes));
  worker::Frame challenge;
  challenge.set_nonce(controller_nonce_);
  ASSIGN_OR_RETURN(*challenge.mutable_proof(),
                   MakeProof(secret_, SessionRole::kController, worker_nonce_, controller_nonce_));
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (phase_ != Phase::kNonce) return absl::OkStatus();
    Enter(Phase::kProof);
    queue_.PushFrame(std::move(challenge));
  }
  Pump();
  return absl::OkStatus();
}

absl::Status HubSession::OnProof(const worker::Frame& frame) {
  ASSIGN_OR_RETURN(const std::string want,
                   MakeProof(secret_, SessionRole::kWorker, worker_nonce_, controller_nonce_));
  if (!SameProof(want, frame.proof()) || !frame.body().empty() || !frame.nonce().empty()) {
    return absl::UnauthenticatedError("the peer does not know this cluster secret");
  }
  const std::lock_guard<std::mutex> lock(mu_);
  if (phase_ == Phase::kProof) Enter(Phase::kHello);
  return absl::OkStatus();
}

absl::Status HubSession::OnBody(worker::Frame frame) {
  ASSIGN_OR_RETURN(const std::optional<std::string> bytes, assembler_.Add(std::move(frame)));
  if (!bytes.has_value()) return absl::OkStatus();
  worker::WorkerMessage message;
  if (!message.ParseFromString(*bytes)) {
    return absl::InvalidArgumentError("a message that cannot be read");
  }
  if (phase() == Phase::kHello) {
    if (!message.has_hello()) return absl::InvalidArgumentError("a message before hello");
    {
      const std::lock_guard<std::mutex> lock(mu_);
      if (phase_ != Phase::kHello) return absl::OkStatus();
      Enter(Phase::kOpen);
      ever_open_ = true;
    }
    owner_->OnHello(self_, std::move(*message.mutable_hello()));
    return absl::OkStatus();
  }
  owner_->OnMessage(self_, std::move(message));
  return absl::OkStatus();
}

}  // namespace millrace
