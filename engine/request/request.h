// What comes into the engine and what goes out of it, free of wire formats and tensors.
#ifndef ENGINE_REQUEST_REQUEST_H_
#define ENGINE_REQUEST_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace millrace {

// Unique among all sequences an engine has ever seen; never a client's string.
using SequenceId = uint64_t;

inline constexpr int32_t kMaxTopLogprobs = 20;

// Resolved sampling options of one sequence: every "unset" of the wire has been replaced.
struct SamplingParams {
  float temperature = 1.0f;  // 0 = greedy
  int32_t top_k = 0;         // 0 = off
  float top_p = 1.0f;        // 1 = off
  float min_p = 0.0f;        // 0 = off
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  uint64_t seed = 0;
  int32_t max_tokens = 16;              // >= 1
  int32_t min_tokens = 0;               // <= max_tokens; stop ids cannot be sampled before
  std::vector<int32_t> stop_token_ids;  // end-of-sequence ids included unless ignore_eos
  std::vector<std::pair<int32_t, float>> logit_bias;
  int32_t num_logprobs = -1;         // -1 = none, 0 = of the sampled token, k = and of the k best
  int32_t num_prompt_logprobs = -1;  // same, for each prompt token but the first

  bool has_penalties() const {
    return repetition_penalty != 1.0f || frequency_penalty != 0.0f || presence_penalty != 0.0f;
  }
};

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0;
};

// One token with its log-probability (log-softmax of the raw logits) and the best alternatives.
struct ScoredToken {
  TokenLogprob token;
  std::vector<TokenLogprob> top;
};

enum class FinishReason : uint8_t {
  kStop,    // a stop id was sampled, or the caller saw a stop string
  kLength,  // max_tokens, or the model's context is full
  kAbort,   // cancelled by the caller or his deadline
  kError,   // see FinishEvent::status
};

// One step's news of one sequence. Tokens are in order and never repeated.
struct TokenEvent {
  SequenceId id = 0;
  int32_t token = -1;
  std::optional<ScoredToken> logprobs;            // when num_logprobs >= 0
  std::vector<ScoredToken> prompt_logprobs;       // with the first token only: prompt[1..]
  std::vector<std::vector<float>> prompt_logits;  // with the first token: rows asked for
  int32_t cached_tokens = 0;                      // prompt tokens served by the prefix cache
};

struct FinishEvent {
  SequenceId id = 0;
  FinishReason reason = FinishReason::kStop;
  std::optional<int32_t> matched_token;  // kStop: the stop id
  absl::Status status;                   // kError, kAbort: why
};

// Receives a sequence's events, on the engine thread: must not block. OnToken any number of times,
// then OnFinish exactly once.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void OnToken(const TokenEvent& event) = 0;
  virtual void OnFinish(const FinishEvent& event) = 0;
};

// One sequence to generate. A client request with n > 1 becomes n of these.
struct Request {
  SequenceId id = 0;
  std::vector<int32_t> prompt;  // >= 1 ids, all inside the vocabulary
  SamplingParams sampling;
  std::string cache_salt;  // sequences share cached prefixes only under equal salts
  absl::Time deadline = absl::InfiniteFuture();
  // Prompt positions whose raw logits rows are returned with the first token (tests and golden
  // checks); ascending. Such a request, and one with prompt logprobs, reads nothing from the
  // prefix cache, because cached tokens have no logits.
  std::vector<int32_t> logits_positions;

  bool wants_prompt_logits() const {
    return sampling.num_prompt_logprobs >= 0 || !logits_positions.empty();
  }
};

}  // namespace millrace

#endif  // ENGINE_REQUEST_REQUEST_H_
