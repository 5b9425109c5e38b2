// Picks the next token of each sequence from its logits, and reports log-probabilities.
#ifndef KERNELS_SAMPLE_SAMPLE_H_
#define KERNELS_SAMPLE_SAMPLE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

inline constexpr int32_t kSampleTopLogprobs = 20;

// Below this a temperature counts as 0: the distribution is its own maximum.
inline constexpr float kMinTemperature = 1e-5f;

// How one row is sampled. Trivially copyable; the lists live where the device reads them (CPU: host
// memory) and are borrowed for the call. Ids in a list are in [0, V) and, in the penalty list,
// distinct.
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
};

enum class SampleFlag : int32_t {
  kOk = 0,
  kNotFinite = 1,    // a NaN or an infinity among the row's logits, or made by its penalties
  kNothingLeft = 2,  // every token is banned
};

struct SampleArgs {
  TensorView logits;                 // [S, V] f32, not changed; rows may be padded
  absl::Span<const SampleRow> rows;  // S, on the host
  TensorView ids;                    // [S] i32 out: the sampled token, -1 where the flag is not kOk
  TensorView flags;                  // [S] i32 out: SampleFlag
  TensorView logprob;                // [S] f32 out: of the sampled token; 0 where not asked for
  TensorView top_ids;  // [S, kSampleTopLogprobs] i32 out: likeliest first; -1 past those asked for
  TensorView top_logprobs;  // [S, kSampleTopLogprobs] f32 out: 0 past those asked for
};

// For each row, in this order: bias and bans, repetition, frequency and presence penalty,
// temperature, min_p, top_k, top_p; then one draw by inverse CDF in the order of ids, with a
// uniform number of Philox4x32-10 keyed by the seed and counted by the position. Logprobs are the
// log-softmax of the logits as given. A row's result depends on nothing but the row.
//
// Ties: greedy and the top list prefer the lowest id. The filters keep or drop equal logits
// together: top_k keeps all that equal the k-th largest, top_p all that equal the one that reaches
// p.
//
// A row that is flagged leaves the others as they are. InvalidArgument, naming row and field, for
// parameters out of range and for operands that do not fit together; Unimplemented where the device
// has no kernel; ResourceExhausted when the workspace is smaller than SampleWorkspaceBytes().
// Worker thread.
absl::Status Sample(const OpContext& ctx, const SampleArgs& args);

struct TokenLogprobsArgs {
  TensorView logits;   // [S, V] f32, not changed; rows may be padded
  TensorView targets;  // [S] i32: the token that stands at this place; in [0, V)
  TensorView logprob;  // [S] f32 out: of the target
  TensorView rank;     // [S] i32 out: 1 for the likeliest; equal logits share the best rank
  TensorView top_ids;  // [S, k] i32 out, 0 <= k <= kSampleTopLogprobs: likeliest first, then by id
  TensorView top_logprobs;  // [S, k] f32 out
};

// Log-probabilities of given tokens, for prompts. A row with a NaN or an infinity gets logprob NaN,
// rank 0 and ids of -1; so do places past V. Errors and thread as for Sample().
absl::Status TokenLogprobs(const OpContext& ctx, const TokenLogprobsArgs& args);

// Workspace that suffices for both, with up to `max_rows` rows.
int64_t SampleWorkspaceBytes(Device& device, int64_t max_rows, int64_t vocabulary);

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_H_
