// A Generate request as the client meant it, free of wire formats: every "0 means unset" of the
// wire has become an optional. Defaults are filled in later (distributed/controller/admission).
#ifndef DISTRIBUTED_WIRE_CLIENT_REQUEST_H_
#define DISTRIBUTED_WIRE_CLIENT_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/chat/chat_message.h"

namespace millrace {

using TokenPrompt = std::vector<int32_t>;
using TextPrompt = std::string;
using ChatPrompt = std::vector<ChatMessage>;

struct RequestedSampling {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  std::optional<int32_t> max_tokens;
  int32_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::pair<int32_t, float>> logit_bias;  // ascending ids
  int32_t num_logprobs = -1;                          // -1 none, 0 the sampled, k and the k best
  int32_t num_prompt_logprobs = -1;
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
};

// How tokens become text.
struct TextOptions {
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = false;
  // The decoders of today's tokenizers put no space of their own between special tokens, so both
  // values give the same text.
  bool spaces_between_special_tokens = false;
};

struct ClientRequest {
  std::string request_id;  // "" = the server chooses
  std::variant<TokenPrompt, TextPrompt, ChatPrompt> prompt;
  ChatOptions chat;  // of a ChatPrompt
  RequestedSampling sampling;
  TextOptions text;
  int32_t n = 1;
  bool stream = false;
  // k > 0: only the last k prompt tokens are used; -1: as many as fit.
  std::optional<int32_t> truncate_prompt_tokens;
  std::string cache_salt;
};

}  // namespace millrace

#endif  // DISTRIBUTED_WIRE_CLIENT_REQUEST_H_
