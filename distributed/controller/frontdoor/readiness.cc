#include "distributed/controller/frontdoor/readiness.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/wire/error_details.h"

namespace millrace {

void Readiness::Set(ServerState state, std::string detail) {
  std::lock_guard lock(mu_);
  if (state_ == ServerState::kDraining) return;
  const bool was_serving = state_ == ServerState::kServing;
  state_ = state;
  detail_ = std::move(detail);
  const bool is_serving = state_ == ServerState::kServing;
  if (is_serving != was_serving) on_change_(is_serving);
}

ServerState Readiness::state() const {
  std::lock_guard lock(mu_);
  return state_;
}

absl::Status Readiness::status() const {
  std::lock_guard lock(mu_);
  switch (state_) {
    case ServerState::kServing:
      return absl::OkStatus();
    case ServerState::kLoading: {
      ErrorFacts facts;
      facts.reason = kReasonLoading;
      facts.retry_after = absl::Seconds(1);
      return WithFacts(absl::UnavailableError("the model is still loading; try again later"),
                       facts);
    }
    case ServerState::kDraining:
      return WithReason(absl::UnavailableError("the server is shutting down"), kReasonDraining);
    case ServerState::kWorkerLost:
      break;
  }
  return AddEngineFacts(absl::UnavailableError(absl::StrCat("WORKER_LOST: ", detail_)));
}

}  // namespace millrace
