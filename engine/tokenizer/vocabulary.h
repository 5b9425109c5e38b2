// Token strings and their ids, both ways.
#ifndef ENGINE_TOKENIZER_VOCABULARY_H_
#define ENGINE_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace millrace {

// Ids run from 0 to kMaxTokens - 1: a file that names a larger one is refused before memory for
// the ids below it is spent.
inline constexpr int64_t kMaxTokens = int64_t{1} << 22;

// Filled once, then read by any thread.
class Vocabulary {
 public:
  // AlreadyExists when the id or the token is taken. REQUIRES: 0 <= id < kMaxTokens.
  absl::Status Add(std::string_view token, int32_t id);

  std::optional<int32_t> Find(std::string_view token) const;

  // The token of `id`; empty when the id is unknown or out of range.
  std::string_view Token(int32_t id) const {
    return Contains(id) ? tokens_[static_cast<size_t>(id)] : std::string_view();
  }
  bool Contains(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < tokens_.size() &&
           tokens_[static_cast<size_t>(id)].data() != nullptr;
  }

  // The largest id and one; ids below it may be unknown where the file leaves gaps.
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  std::deque<std::string> storage_;
  std::vector<std::string_view> tokens_;  // by id; data() is null where there is none
  // absl's hash does not take std::string_view, so keys are views of its own kind.
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_VOCABULARY_H_
