// Matrices that stay in their checkpoint's format in device memory. A rank reads the bytes of its
// own part, scales included.
#ifndef ENGINE_LAYERS_STORED_WEIGHT_H_
#define ENGINE_LAYERS_STORED_WEIGHT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/layers/weight_loader.h"
#include "engine/parallel/shard.h"
#include "kernels/stored_matrix/stored_matrix.h"

namespace millrace {

// This rank's part of a matrix.
struct StoredPart {
  std::string prefix;  // "layers.0.attn.wq_a": of ".weight", ".scale" and so on
  int64_t rows = 0;    // of the whole matrix
  int64_t cols = 0;
  Range row_part;
  Range col_part;
};

// The whole of it, as a rank of a replicated layer has it.
StoredPart WholeMatrix(std::string prefix, int64_t rows, int64_t cols);

// Owns the memory of `matrix`, whose tensors are null when it was only recorded; its format and
// sizes are set all the same.
struct StoredWeight {
  Weight values;
  Weight scales;
  Weight factors;
  StoredMatrix matrix;
};

// The parts as a stack of matrices, in whichever format the loader's source has them
// (FindStoredLayout, also for errors). InvalidArgument besides: parts of different formats, or a
// range of columns that cuts a block of FP4 (with the reason).
// REQUIRES: at least one part, and all of the same sizes and ranges.
absl::StatusOr<StoredWeight> LoadStored(absl::Span<const StoredPart> parts, WeightLoader& loader);
absl::StatusOr<StoredWeight> LoadStored(const StoredPart& part, WeightLoader& loader);

// Checks a matrix that other ranks hold and counts its tensors among those of the model; errors as
// LoadStored.
absl::Status SkipStored(const StoredPart& part, WeightLoader& loader);

// Part `ctx.rank` of `cols` columns cut into `ctx.size` ranges as equal as whole blocks allow, for
// the matrix `prefix` of `rows` rows as the source stores it. InvalidArgument, naming the matrix
// and its format, when there are fewer blocks than ranks.
absl::StatusOr<Range> CutColumns(const std::string& prefix, int64_t rows, int64_t cols,
                                 const LoadContext& ctx);

}  // namespace millrace

#endif  // ENGINE_LAYERS_STORED_WEIGHT_H_
