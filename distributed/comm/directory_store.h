// A KeyValueStore for ranks that are processes of one machine: a file per key. For tests and
// benches.
#ifndef DISTRIBUTED_COMM_DIRECTORY_STORE_H_
#define DISTRIBUTED_COMM_DIRECTORY_STORE_H_

#include <string>
#include <utility>

#include "distributed/comm/key_value_store.h"

namespace millrace {

class DirectoryStore final : public KeyValueStore {
 public:
  explicit DirectoryStore(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override;

 private:
  std::string Path(const std::string& key) const;
  const std::string folder_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_DIRECTORY_STORE_H_
