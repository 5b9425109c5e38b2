// Text of one choice as it grows: whole characters only, and nothing that may still turn out to be
// part of a stop string. One thread at a time.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_TEXT_STREAM_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_TEXT_STREAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "distributed/wire/client_request.h"
#include "engine/tokenizer/tokenizer.h"

namespace millrace {

class TextStream final {
 public:
  // The text continues that of `prompt`. A null tokenizer gives no text; then stop strings never
  // match.
  TextStream(std::shared_ptr<const Tokenizer> tokenizer, const TextOptions& options,
             absl::Span<const int32_t> prompt);
  ~TextStream();
  TextStream(TextStream&&) noexcept;
  TextStream& operator=(TextStream&&) noexcept;

  // Text that `token` made certain. Stop strings are looked for only in text of tokens with
  // `may_stop`. REQUIRES: no match yet.
  std::string Push(int32_t token, bool may_stop);
  // The rest, at the end of the tokens.
  std::string Finish();
  // The stop string that was completed.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::string Match(const std::string& text);

  struct Parts;
  std::unique_ptr<Parts> parts_;  // null without a tokenizer
  std::optional<std::string> matched_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_TEXT_STREAM_H_
