// A KeyValueStore for ranks that are threads of one process.
#ifndef DISTRIBUTED_COMM_LOCAL_STORE_H_
#define DISTRIBUTED_COMM_LOCAL_STORE_H_

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "distributed/comm/key_value_store.h"

namespace millrace {

class LocalStore final : public KeyValueStore {
 public:
  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override;

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_LOCAL_STORE_H_
