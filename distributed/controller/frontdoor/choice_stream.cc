#include "distributed/controller/frontdoor/choice_stream.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"

namespace millrace {

ChoiceStream::ChoiceStream(ChoiceOptions options, TextStream text)
    : options_(std::move(options)), text_stream_(std::move(text)) {}

std::optional<double> ChoiceStream::OnToken(const TokenEvent& event, MonotonicTime at) {
  if (ended()) return std::nullopt;
  std::optional<double> interval;
  if (output_ids_.empty()) {
    first_token_ = at;
    cached_tokens_ = event.cached_tokens;
    if (options_.prompt_logprobs) {
      prompt_scores_ =
          PromptScores{.first_token = options_.first_prompt_token, .rest = event.prompt_logprobs};
    }
  }
  if (!output_ids_.empty()) interval = SecondsBetween(last_token_, at);
  last_token_ = at;
  output_ids_.push_back(event.token);
  if (event.logprobs.has_value()) logprobs_.push_back(*event.logprobs);
  TakeText(event.token);
  return interval;
}

void ChoiceStream::TakeText(int32_t token) {
  const auto& stops = options_.stop_token_ids;
  // A stop id ends the sequence, so its text is either wanted whole or not at all.
  const bool is_stop = std::find(stops.begin(), stops.end(), token) != stops.end();
  if (is_stop && !options_.include_stop) return;
  const bool may_stop = output_tokens() > options_.min_tokens;
  text_ += text_stream_.Push(token, may_stop);
  if (!text_stream_.matched().has_value()) return;
  matched_stop_ = text_stream_.matched();
  finish_reason_ = FinishReason::kStop;
}

void ChoiceStream::OnFinish(const FinishEvent& event) {
  if (ended()) return;
  finish_reason_ = event.reason;
  matched_token_ = event.matched_token;
  // An abort that the client asked for has an OK status and still ends with a message.
  error_ = event.status;
  if (event.reason == FinishReason::kError && error_.ok()) {
    error_ = absl::InternalError("the engine ended the sequence without a reason");
  }
  text_ += text_stream_.Finish();
  // The last bytes may complete a stop string.
  if (error_.ok() && event.reason == FinishReason::kLength && text_stream_.matched().has_value()) {
    matched_stop_ = text_stream_.matched();
    finish_reason_ = FinishReason::kStop;
  }
}

bool ChoiceStream::has_news() const {
  return options_.stream && (sent_ids_ < output_ids_.size() || sent_text_ < text_.size());
}

ResponseChunk ChoiceStream::TakeChunk() {
  ResponseChunk chunk;
  chunk.index = options_.index;
  chunk.token_ids.assign(output_ids_.begin() + static_cast<std::ptrdiff_t>(sent_ids_),
                         output_ids_.end());
  chunk.text_delta = text_.substr(sent_text_);
  chunk.prompt_tokens = options_.prompt_tokens;
  chunk.cached_tokens = cached_tokens_;
  chunk.logprobs = std::exchange(logprobs_, {});
  if (!sent_any_) chunk.prompt_scores = prompt_scores_;
  sent_any_ = true;
  sent_ids_ = output_ids_.size();
  sent_text_ = text_.size();
  return chunk;
}

ResponseComplete ChoiceStream::TakeComplete() {
  MR_CHECK(ended() && error_.ok());
  ResponseComplete complete;
  complete.index = options_.index;
  complete.usage = usage();
  complete.output_ids = std::move(output_ids_);
  complete.text = std::move(text_);
  complete.finish_reason = *finish_reason_;
  complete.matched_token = matched_token_;
  complete.matched_stop = matched_stop_;
  complete.logprobs = std::exchange(logprobs_, {});
  complete.prompt_scores = std::move(prompt_scores_);
  return complete;
}

UsageFacts ChoiceStream::usage() const {
  UsageFacts usage;
  usage.prompt_tokens = options_.prompt_tokens;
  usage.completion_tokens = output_tokens();
  usage.cached_tokens = cached_tokens_;
  if (output_ids_.empty()) return usage;
  usage.ttft_seconds = SecondsBetween(options_.arrival, first_token_);
  usage.e2e_seconds = SecondsBetween(options_.arrival, last_token_);
  if (output_tokens() > 1) {
    usage.tpot_seconds = SecondsBetween(first_token_, last_token_) / (output_tokens() - 1);
  }
  return usage;
}

}  // namespace millrace
