// Picks the next token of each sequence from its logits, and reports log-probabilities.
#ifndef KERNELS_SAMPLE_SAMPLE_H_
#define KERNELS_SAMPLE_SAMPLE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"
#include "kernels/sample/sample_row.h"

namespace millrace {

struct SampleArgs {
  TensorView logits;                // [S, V] f32, not changed; rows may be padded
  const SampleRow* rows = nullptr;  // [S], in memory that the device reads
  TensorView ids;      // [S] i32 out: the sampled token; -1 where off or the flag is not kOk
  TensorView flags;    // [S] i32 out: SampleFlag
  TensorView logprob;  // [S] f32 out: of the sampled token; 0 where not asked for
  TensorView top_ids;  // [S, kSampleTopLogprobs] i32 out: likeliest first; -1 past those asked for
  TensorView top_logprobs;  // [S, kSampleTopLogprobs] f32 out: 0 past those asked for
  // [slots] i32 out: at a row's slot its id, for the next step's embedding to read; 0 where the
  // flag is not kOk. Written only where a row that is not off names a slot in [0, slots).
  std::optional<TensorView> last_tokens;
};

// InvalidArgument, naming the field, for parameters that Sample() must not see. The lists must be
// in host memory here: whoever fills rows calls this before the lists go to the device. Host only,
// any thread.
absl::Status CheckSampleRow(const SampleRow& row, int64_t vocabulary);

// For each row, in this order: bias and bans, repetition, frequency and presence penalty,
// temperature, min_p, top_k, top_p; then one draw by inverse CDF in the order of ids, with a
// uniform number of Philox4x32-10 keyed by the seed and counted by the position. Logprobs are the
// log-softmax of the logits as given. A row's result depends on nothing but the row.
//
// Ties: greedy and the top list prefer the lowest id. The filters keep or drop equal logits
// together: top_k keeps all that equal the k-th largest, top_p all that equal the one that reaches
// p.
//
// A row that is flagged leaves the others as they are. REQUIRES: CheckSampleRow(row) was OK for
// every row that is not off. InvalidArgument for operands that do not fit together; Unimplemented
// where the device has no kernel; ResourceExhausted when the workspace is smaller than
// SampleWorkspaceBytes(). On CUDA it can be captured in a graph. Worker thread.
absl::Status Sample(const OpContext& ctx, const SampleArgs& args);

struct TokenLogprobsArgs {
  TensorView logits;   // [S, V] f32, not changed; rows may be padded
  TensorView targets;  // [S] i32: the token that stands at this place
  TensorView logprob;  // [S] f32 out: of the target
  TensorView rank;     // [S] i32 out: 1 for the likeliest; equal logits share the best rank
  TensorView top_ids;  // [S, k] i32 out, 0 <= k <= kSampleTopLogprobs: likeliest first, then by id
  TensorView top_logprobs;  // [S, k] f32 out
};

// Log-probabilities of given tokens, for prompts. A row with a NaN or an infinity gets logprob NaN,
// rank 0 and ids of -1; so do places past V. A target outside the vocabulary gets logprob NaN and
// rank 0. Errors and thread as for Sample().
absl::Status TokenLogprobs(const OpContext& ctx, const TokenLogprobsArgs& args);

// Workspace that suffices for both, with up to `max_rows` rows.
int64_t SampleWorkspaceBytes(Device& device, int64_t max_rows, int64_t vocabulary);

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_H_
