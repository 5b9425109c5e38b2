#include "distributed/worker/session_store.h"

#include "absl/strings/str_cat.h"

namespace millrace {

absl::Status SessionStore::Set(const std::string& key, const std::string& value) {
  worker::WorkerMessage message;
  message.mutable_store_set()->set_key(key);
  message.mutable_store_set()->set_value(value);
  send_(message);
  return absl::OkStatus();
}

absl::StatusOr<std::string> SessionStore::Get(const std::string& key, absl::Duration timeout) {
  worker::WorkerMessage message;
  uint64_t id = 0;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    id = ++last_id_;
    waiting_[id];
  }
  message.mutable_store_get()->set_id(id);
  message.mutable_store_get()->set_key(key);
  send_(message);
  std::unique_lock<std::mutex> lock(mu_);
  const bool done = changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                                      [&] { return stopped_ || waiting_[id].has_value(); });
  const std::optional<std::string> value = std::move(waiting_[id]);
  waiting_.erase(id);
  if (value.has_value()) return *value;
  if (done) return absl::UnavailableError("rendezvous: the group has ended");
  return absl::DeadlineExceededError(
      absl::StrCat("rendezvous: no rank has set ", key, " within ", absl::FormatDuration(timeout)));
}

void SessionStore::OnValue(const worker::StoreValue& value) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = waiting_.find(value.id());
  if (found == waiting_.end()) return;  // gave up meanwhile
  found->second = value.value();
  changed_.notify_all();
}

void SessionStore::Stop() {
  const std::lock_guard<std::mutex> lock(mu_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace millrace
