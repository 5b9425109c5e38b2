// A part of a KeyValueStore for a smaller group of the same ranks.
#ifndef DISTRIBUTED_COMM_PREFIXED_STORE_H_
#define DISTRIBUTED_COMM_PREFIXED_STORE_H_

#include <string>
#include <utility>

#include "distributed/comm/key_value_store.h"

namespace millrace {

class PrefixedStore final : public KeyValueStore {
 public:
  // `store` outlives it.
  PrefixedStore(KeyValueStore& store, std::string prefix)
      : store_(store), prefix_(std::move(prefix)) {}
  absl::Status Set(const std::string& key, const std::string& value) override {
    return store_.Set(prefix_ + key, value);
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    return store_.Get(prefix_ + key, timeout);
  }

 private:
  KeyValueStore& store_;
  const std::string prefix_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_PREFIXED_STORE_H_
