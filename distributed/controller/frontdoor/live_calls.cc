#include "distributed/controller/frontdoor/live_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/wire/error_details.h"

namespace millrace {

absl::Status LiveCalls::Add(const std::string& id, std::shared_ptr<LiveCall> call) {
  std::lock_guard lock(mu_);
  if (!by_id_.emplace(id, call).second) {
    return WithReason(absl::AlreadyExistsError(absl::StrCat("request_id: a request with the id \"",
                                                            id, "\" is running")),
                      kReasonDuplicateRequest);
  }
  const LiveCall* key = call.get();
  all_.emplace(key, std::move(call));
  return absl::OkStatus();
}

void LiveCalls::ReleaseId(const std::string& id) {
  std::lock_guard lock(mu_);
  if (by_id_.erase(id) == 0) return;
  ended_.push_back(id);
  ++ended_count_[id];
  if (ended_.size() <= kRemembered) return;
  const auto oldest = ended_count_.find(ended_.front());
  if (--oldest->second == 0) ended_count_.erase(oldest);
  ended_.pop_front();
}

void LiveCalls::Remove(const LiveCall* call) {
  std::shared_ptr<LiveCall> last;  // destroyed without the lock
  std::lock_guard lock(mu_);
  const auto it = all_.find(call);
  if (it == all_.end()) return;
  last = std::move(it->second);
  all_.erase(it);
}

std::vector<std::string> LiveCalls::Abort(const std::vector<std::string>& ids) {
  std::vector<std::shared_ptr<LiveCall>> found;
  std::vector<std::string> unknown;
  {
    std::lock_guard lock(mu_);
    for (const std::string& id : ids) {
      const auto it = by_id_.find(id);
      if (it != by_id_.end()) {
        found.push_back(it->second);
      } else if (!ended_count_.contains(id)) {
        unknown.push_back(id);
      }
    }
  }
  for (const auto& call : found) call->Abort();
  return unknown;
}

void LiveCalls::TickAll(MonotonicTime now) {
  std::vector<std::shared_ptr<LiveCall>> calls;
  {
    std::lock_guard lock(mu_);
    for (const auto& [key, call] : all_) calls.push_back(call);
  }
  for (const auto& call : calls) call->Tick(now);
}

int64_t LiveCalls::running() const {
  std::lock_guard lock(mu_);
  return static_cast<int64_t>(by_id_.size());
}

}  // namespace millrace
