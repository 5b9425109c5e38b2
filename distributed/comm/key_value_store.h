// Where the ranks of one group leave their addresses for each other.
#ifndef DISTRIBUTED_COMM_KEY_VALUE_STORE_H_
#define DISTRIBUTED_COMM_KEY_VALUE_STORE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace millrace {

// Any thread. Keys belong to one group; a key is set once.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // Waits until some rank has set the key. DeadlineExceeded naming the key; Unavailable when the
  // group has ended meanwhile.
  virtual absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) = 0;
};

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_KEY_VALUE_STORE_H_
