// The key-value store in which the ranks of one group find each other.
#ifndef DISTRIBUTED_CONTROLLER_CLUSTER_RENDEZVOUS_STORE_H_
#define DISTRIBUTED_CONTROLLER_CLUSTER_RENDEZVOUS_STORE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

// Not thread-safe.
class RendezvousStore final {
 public:
  struct Waiter {
    int32_t rank = 0;
    uint64_t id = 0;
  };

  // Who has waited for the key. InvalidArgument past the caps, AlreadyExists for the second value.
  absl::StatusOr<std::vector<Waiter>> Set(const std::string& key, const std::string& value);
  // The value, or nothing yet: `waiter` is remembered. InvalidArgument past the caps.
  absl::StatusOr<std::optional<std::string>> Get(const std::string& key, Waiter waiter);

  static constexpr size_t kMaxKeys = 4096;
  static constexpr size_t kMaxKeyBytes = 256;
  static constexpr size_t kMaxValueBytes = 64 * 1024;

 private:
  struct Entry {
    std::optional<std::string> value;
    std::vector<Waiter> waiters;
  };
  absl::StatusOr<Entry*> Find(const std::string& key);

  std::map<std::string, Entry> entries_;
  size_t waiters_ = 0;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_CLUSTER_RENDEZVOUS_STORE_H_
