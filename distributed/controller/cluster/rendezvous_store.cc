#include "distributed/controller/cluster/rendezvous_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {

absl::StatusOr<RendezvousStore::Entry*> RendezvousStore::Find(const std::string& key) {
  if (key.size() > kMaxKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous: a key of ", key.size(), " bytes, want at most ", kMaxKeyBytes));
  }
  if (entries_.size() >= kMaxKeys && entries_.count(key) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous: more than ", kMaxKeys, " keys"));
  }
  return &entries_[key];
}

absl::StatusOr<std::vector<RendezvousStore::Waiter>> RendezvousStore::Set(
    const std::string& key, const std::string& value) {
  if (value.size() > kMaxValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous: a value of ", value.size(),
                                                   " bytes, want at most ", kMaxValueBytes));
  }
  ASSIGN_OR_RETURN(Entry* const entry, Find(key));
  if (entry->value.has_value()) {
    return absl::AlreadyExistsError(absl::StrCat("rendezvous: ", key, " is set twice"));
  }
  entry->value = value;
  waiters_ -= entry->waiters.size();
  return std::exchange(entry->waiters, {});
}

absl::StatusOr<std::optional<std::string>> RendezvousStore::Get(const std::string& key,
                                                                Waiter waiter) {
  ASSIGN_OR_RETURN(Entry* const entry, Find(key));
  if (!entry->value.has_value()) {
    if (waiters_ >= kMaxKeys) {
      return absl::InvalidArgumentError(absl::StrCat("rendezvous: more than ", kMaxKeys, " waits"));
    }
    ++waiters_;
    entry->waiters.push_back(waiter);
  }
  return entry->value;
}

}  // namespace millrace
