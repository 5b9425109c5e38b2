#include "engine/tokenizer/vocabulary.h"

#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"

namespace millrace {
namespace {

absl::string_view Key(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::Status Vocabulary::Add(std::string_view token, int32_t id) {
  MR_CHECK(id >= 0 && id < kMaxTokens);
  if (Contains(id)) {
    return absl::AlreadyExistsError(absl::StrCat("id ", id, " of token \"", Key(token),
                                                 "\" is already that of \"", Key(Token(id)), "\""));
  }
  if (const auto known = Find(token); known.has_value()) {
    return absl::AlreadyExistsError(
        absl::StrCat("token \"", Key(token), "\" has ids ", *known, " and ", id));
  }
  const std::string& kept = storage_.emplace_back(token);
  if (tokens_.size() <= static_cast<size_t>(id)) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = kept;
  ids_.emplace(Key(kept), id);
  return absl::OkStatus();
}

std::optional<int32_t> Vocabulary::Find(std::string_view token) const {
  const auto found = ids_.find(Key(token));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

}  // namespace millrace
