// The part of the hub that watches the clock.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "distributed/controller/cluster/worker_hub_impl.h"

namespace millrace {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kHeartbeat = absl::Seconds(1);
constexpr absl::Duration kHandshakeLimit = absl::Milliseconds(800);
constexpr absl::Duration kCloseLimit = absl::Seconds(1);

}  // namespace

void WorkerHubImpl::Monitor() {
  std::unique_lock<std::mutex> lock(mu_);
  next_heartbeat_ = absl::Now();
  TellWaiting();
  while (!shut_down_) {
    changed_.wait_for(lock, absl::ToChronoMilliseconds(kTick), [&] { return shut_down_; });
    if (shut_down_) return;
    const absl::Time now = absl::Now();
    CheckSessions(now);
    CheckGroup(now);
    CheckWaiting(now);
    SendHeartbeats(now);
  }
}

void WorkerHubImpl::CheckSessions(absl::Time) {
  // A copy: closing may change the list.
  const std::vector<std::shared_ptr<HubSession>> sessions = sessions_;
  for (const std::shared_ptr<HubSession>& session : sessions) {
    switch (session->phase()) {
      case HubSession::Phase::kNonce:
      case HubSession::Phase::kProof:
      case HubSession::Phase::kHello:
        if (session->InPhase() > kHandshakeLimit) {
          session->Close(absl::DeadlineExceededError("no handshake in time"));
          session->Cancel();
        }
        break;
      case HubSession::Phase::kOpen:
        if (session->Silence() > options_.lease) {
          const absl::Status silent = absl::UnavailableError(
              absl::StrCat("nothing heard of it for ", absl::FormatDuration(options_.lease)));
          const int32_t rank = group_ == nullptr ? -1 : group_->RankOf(*session);
          if (rank >= 0) {
            Lose(rank, silent);
          } else {
            DropWaiting(*session, std::string(silent.message()));
          }
          session->Close(silent);
          session->Cancel();
        }
        break;
      case HubSession::Phase::kClosing:
        if (session->InPhase() > kCloseLimit) session->Cancel();
        break;
    }
  }
}

void WorkerHubImpl::CheckGroup(absl::Time now) {
  if (group_ == nullptr) return;
  if (suspicion_.has_value() && now > suspicion_->until) {
    const Suspicion suspicion = *suspicion_;
    Lose(suspicion.rank, suspicion.status);
    return;
  }
  int32_t rank = -1;
  const absl::Status status = group_->CheckTime(now, &rank);
  if (!status.ok()) {
    Lose(rank, status);
    return;
  }
  if (!was_ready() && now - start_ > options_.startup_timeout) {
    final_error_ = absl::DeadlineExceededError(
        absl::StrCat("the workers are there, but the model was not ready within ",
                     absl::FormatDuration(options_.startup_timeout), "; raise --startup-timeout"));
    Lose(-1, final_error_);
  }
}

void WorkerHubImpl::CheckWaiting(absl::Time now) {
  if (group_ != nullptr || !final_error_.ok()) return;
  if (!was_ready() && now - start_ > options_.startup_timeout) {
    std::vector<std::string> present;
    for (const Member& member : waiting_) present.push_back(member.Name());
    final_error_ = absl::DeadlineExceededError(
        absl::StrCat(waiting_.size(), " of ", options_.world, " workers came within ",
                     absl::FormatDuration(options_.startup_timeout), " (",
                     present.empty() ? "none" : absl::StrJoin(present, ", "), "); start the other ",
                     static_cast<size_t>(options_.world) - waiting_.size(),
                     " with: worker --controller HOST:", port_));
    changed_.notify_all();
    return;
  }
  if (now >= next_waiting_) TellWaiting();
}

void WorkerHubImpl::SendHeartbeats(absl::Time now) {
  if (now < next_heartbeat_) return;
  next_heartbeat_ = now + kHeartbeat;
  worker::ControllerMessage message;
  message.mutable_heartbeat();
  const auto bytes = std::make_shared<const std::string>(message.SerializeAsString());
  for (const std::shared_ptr<HubSession>& session : sessions_) {
    if (session->phase() == HubSession::Phase::kOpen) session->Send(bytes);
  }
}

}  // namespace millrace
