// What Sample() reads of a row besides its logits. Host and device code include it: no Abseil.
#ifndef KERNELS_SAMPLE_SAMPLE_ROW_H_
#define KERNELS_SAMPLE_SAMPLE_ROW_H_

#include <cstdint>
#include <type_traits>

namespace millrace {

inline constexpr int32_t kSampleTopLogprobs = 20;

// Below this a temperature counts as 0: the distribution is its own maximum.
inline constexpr float kMinTemperature = 1e-5f;

// How one row is sampled. Rows and their lists lie in memory that the device reads (CPU: host
// memory), so that a captured graph is replayed with what they hold then. Ids in a list are in
// [0, V) and distinct; the device passes over those that are not in [0, V).
struct SampleRow {
  float temperature = 0;         // divides the logits; 0: greedy, the filters are not looked at
  int32_t top_k = 0;             // keeps the k largest; 0 or V and more: all
  float top_p = 1;               // keeps the likeliest that together reach p; in (0, 1], 1: all
  float min_p = 0;               // keeps those of at least min_p x the likeliest; in [0, 1], 0: all
  float repetition_penalty = 1;  // divides positive and multiplies negative logits of listed ids
  float frequency_penalty = 0;   // times the count is subtracted
  float presence_penalty = 0;    // subtracted where the count is above 0
  int32_t num_top_logprobs =
      -1;  // -1: no logprobs, 0: the sampled token's, up to kSampleTopLogprobs
  uint64_t seed = 0;
  int64_t position = 0;  // of the token to be sampled: (seed, position) alone make the draw

  const int32_t* penalty_ids = nullptr;     // seen in the prompt or the output
  const int32_t* penalty_counts = nullptr;  // times in the output; 0: in the prompt only
  const int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;   // added to the logit
  const int32_t* banned_ids = nullptr;  // never sampled
  int32_t num_penalties = 0;
  int32_t num_biases = 0;
  int32_t num_banned = 0;

  int32_t slot = -1;  // where in last_tokens the sampled id is stored too; -1: nowhere
  // Nonzero: a row that pads a captured graph. Its logits and all else here do not matter.
  int32_t off = 0;
};
static_assert(std::is_trivially_copyable_v<SampleRow>);

enum class SampleFlag : int32_t {
  kOk = 0,           // also of a row that is off
  kNotFinite = 1,    // a NaN or an infinity among the row's logits, or made by its penalties
  kNothingLeft = 2,  // every token is banned
};

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_ROW_H_
