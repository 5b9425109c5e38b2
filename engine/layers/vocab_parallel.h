// The two ends of a language model, the vocabulary's rows split over the ranks.
#ifndef ENGINE_LAYERS_VOCAB_PARALLEL_H_
#define ENGINE_LAYERS_VOCAB_PARALLEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

struct VocabConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
};

// Immutable after load.
class VocabParallelEmbedding final {
 public:
  VocabParallelEmbedding() = default;
  // Weight `name`, [vocab, hidden]. InvalidArgument when there are more ranks than rows.
  static absl::StatusOr<VocabParallelEmbedding> Load(const VocabConfig& config,
                                                     const std::string& name, LoadContext& ctx);

  // out[t] = row token_ids[t] of the table, on every rank; out is [T, hidden].
  absl::Status Forward(ForwardContext& ctx, const ForwardBatch& batch, const TensorView& out) const;

  // This rank's rows, for a head that is tied to them.
  const TensorView& table() const { return table_.view; }

 private:
  Range rows_;    // of the whole table, this rank's
  Weight table_;  // [rows, hidden]
};

// Immutable after load.
class LmHead final {
 public:
  LmHead() = default;
  // Weight `name`, [vocab, hidden].
  static absl::StatusOr<LmHead> Load(const VocabConfig& config, const std::string& name,
                                     LoadContext& ctx);
  // Shares the rows of an embedding, which must outlive it.
  static LmHead Tied(const VocabConfig& config, const VocabParallelEmbedding& embedding,
                     const LoadContext& ctx);

  // logits[r] = W hidden[r], whole rows on every rank; hidden: [R, hidden_size], logits: [R, vocab]
  // f32, contiguous.
  absl::Status Forward(ForwardContext& ctx, const TensorView& hidden,
                       const TensorView& logits) const;

  // That Forward needs at most, its ops' included.
  int64_t WorkspaceBytes(Device& device, const LargestStep& limits) const;

 private:
  VocabConfig config_;
  std::vector<int64_t> rows_by_rank_;
  Weight own_;
  TensorView weight_;  // own_ or the embedding's; [rows of this rank, hidden]
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_VOCAB_PARALLEL_H_
