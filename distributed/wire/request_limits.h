// Caps on what one request may ask for. They are checked before anything is allocated in proportion
// to the claim.
#ifndef DISTRIBUTED_WIRE_REQUEST_LIMITS_H_
#define DISTRIBUTED_WIRE_REQUEST_LIMITS_H_

#include <cstdint>

#include "engine/request/request.h"

namespace millrace {

inline constexpr int32_t kMaxRequestIdBytes = 128;
inline constexpr int32_t kMaxCacheSaltBytes = 256;
inline constexpr int32_t kMaxChoices = 16;
inline constexpr int32_t kMaxStopStrings = 16;
inline constexpr int32_t kMaxStopStringBytes = 256;
inline constexpr int32_t kMaxStopTokenIds = 128;
inline constexpr int32_t kMaxLogitBias = 1024;
inline constexpr int32_t kMaxChatMessages = 1024;
// Of all messages' further fields together; as values they take many times their text.
inline constexpr int64_t kMaxChatFieldsBytes = 1 << 20;
inline constexpr float kMaxTemperature = 100;
inline constexpr float kMaxRepetitionPenalty = 100;
inline constexpr float kMaxLogitBiasValue = 100;
inline constexpr float kMaxAdditivePenalty = 2;

// What depends on the model.
struct RequestLimits {
  int32_t vocab_size = 0;     // ids are in [0, vocab_size)
  int32_t max_model_len = 0;  // prompt and output together
};

}  // namespace millrace

#endif  // DISTRIBUTED_WIRE_REQUEST_LIMITS_H_
