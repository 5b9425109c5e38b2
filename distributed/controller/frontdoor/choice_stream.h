// One choice of a Generate call: turns the engine's token events into chunks of text and ids and a
// final message. One thread at a time; never blocks.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_CHOICE_STREAM_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_CHOICE_STREAM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "distributed/controller/frontdoor/monotonic_time.h"
#include "distributed/controller/frontdoor/text_stream.h"
#include "distributed/wire/response.h"
#include "engine/request/request.h"

namespace millrace {

struct ChoiceOptions {
  int32_t index = 0;
  bool stream = false;
  int32_t prompt_tokens = 0;
  int32_t first_prompt_token = -1;
  int32_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  bool include_stop = false;
  bool prompt_logprobs = false;
  MonotonicTime arrival;
};

class ChoiceStream final {
 public:
  ChoiceStream(ChoiceOptions options, TextStream text);

  // `at`: when the engine reported the token. Events after the end are dropped. Returns the seconds
  // since the token before, nothing for the first.
  std::optional<double> OnToken(const TokenEvent& event, MonotonicTime at);
  void OnFinish(const FinishEvent& event);

  // A stop string was completed: the choice has ended, its sequence may still run.
  bool ended_by_text() const { return matched_stop_.has_value(); }
  bool ended() const { return finish_reason_.has_value(); }
  // Not OK: the whole call ends with it.
  const absl::Status& error() const { return error_; }

  // Something no chunk has carried yet (streamed answers only).
  bool has_news() const;
  ResponseChunk TakeChunk();
  // REQUIRES: ended() and no error.
  ResponseComplete TakeComplete();

 private:
  int32_t output_tokens() const { return static_cast<int32_t>(output_ids_.size()); }
  UsageFacts usage() const;
  void TakeText(int32_t token);

  ChoiceOptions options_;
  TextStream text_stream_;
  std::vector<int32_t> output_ids_;
  std::string text_;
  std::vector<ScoredToken> logprobs_;  // not yet sent
  std::optional<PromptScores> prompt_scores_;
  std::optional<FinishReason> finish_reason_;
  std::optional<int32_t> matched_token_;
  std::optional<std::string> matched_stop_;
  absl::Status error_;
  int32_t cached_tokens_ = 0;
  size_t sent_ids_ = 0;
  size_t sent_text_ = 0;
  bool sent_any_ = false;
  MonotonicTime first_token_;
  MonotonicTime last_token_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_CHOICE_STREAM_H_
