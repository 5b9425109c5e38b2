#include "distributed/comm/local_store.h"

#include "absl/strings/str_cat.h"

namespace millrace {

absl::Status LocalStore::Set(const std::string& key, const std::string& value) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (!values_.emplace(key, value).second) {
    return absl::AlreadyExistsError(absl::StrCat("rendezvous: key ", key, " is set already"));
  }
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalStore::Get(const std::string& key, absl::Duration timeout) {
  std::unique_lock<std::mutex> lock(mu_);
  if (!changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                         [&] { return values_.count(key) > 0; })) {
    return absl::DeadlineExceededError(absl::StrCat("rendezvous: nobody has set key ", key, " in ",
                                                    absl::FormatDuration(timeout)));
  }
  return values_[key];
}

}  // namespace millrace
