// What a Generate call answers, free of wire formats.
#ifndef DISTRIBUTED_WIRE_RESPONSE_H_
#define DISTRIBUTED_WIRE_RESPONSE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request/request.h"

namespace millrace {

// Prompt positions with their scores; the first token of a prompt has none.
struct PromptScores {
  int32_t first_token = -1;
  std::vector<ScoredToken> rest;
};

struct UsageFacts {
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;
  int32_t cached_tokens = 0;
  double ttft_seconds = 0;
  double tpot_seconds = 0;
  double e2e_seconds = 0;
};

// News of one choice since its last chunk.
struct ResponseChunk {
  int32_t index = 0;
  std::vector<int32_t> token_ids;
  std::string text_delta;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  std::vector<ScoredToken> logprobs;          // of token_ids, when asked for
  std::optional<PromptScores> prompt_scores;  // first chunk only, when asked for
};

// The end of one choice.
struct ResponseComplete {
  int32_t index = 0;
  std::vector<int32_t> output_ids;  // all of the choice
  std::string text;                 // all of the choice
  FinishReason finish_reason = FinishReason::kStop;
  std::optional<int32_t> matched_token;
  std::optional<std::string> matched_stop;
  std::vector<ScoredToken> logprobs;  // of output_ids; in a streamed answer the chunks carry them
  std::optional<PromptScores> prompt_scores;
  UsageFacts usage;
};

}  // namespace millrace

#endif  // DISTRIBUTED_WIRE_RESPONSE_H_
