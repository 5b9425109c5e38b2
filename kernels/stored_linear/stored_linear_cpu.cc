#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/stored_linear/stored_linear_impl.h"
#include "kernels/stored_matrix/stored_matrix_cpu.h"

namespace millrace {
namespace {

// Tokens that are prepared at once. Bounds the workspace; more would not be faster.
constexpr int64_t kMaxTokens = 512;
// Weights that are worth another thread.
constexpr int64_t kWeightsPerTask = 8192;
// Inputs that are worth another thread when preparing.
constexpr int64_t kPreparedPerTask = 16384;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A thread's: widened rows, and a tile's products with all tokens.
int64_t ScratchFloats(int64_t padded) { return kStoredTileRows * (padded + kMaxTokens); }

absl::StatusOr<float*> TakeFloats(WorkspaceScope& scope, int64_t count) {
  ASSIGN_OR_RETURN(void* memory, scope.Take(count * static_cast<int64_t>(sizeof(float))));
  return static_cast<float*>(memory);
}

// [tokens, kStoredTileRows] products to `rows` columns of y from `row`.
void StoreTile(const StoredTile& tile, const TensorView& y) {
  for (int64_t t = 0; t < tile.tokens; ++t) {
    const float* from = tile.out + t * kStoredTileRows;
    const int64_t at = t * y.stride(0) + tile.row;
    if (y.dtype == DType::kF32) {
      std::copy(from, from + tile.rows, y.as<float>() + at);
    } else {
      std::transform(from, from + tile.rows, y.as<BFloat16>() + at, ToBFloat16);
    }
  }
}

}  // namespace

int64_t StoredLinearCpuWorkspaceBytes(int threads, int64_t max_inputs) {
  const int64_t padded = StoredPaddedCols(max_inputs);
  const auto bytes = [](int64_t floats) { return DivideUp(floats * 4, 256) * 256; };
  return bytes(kMaxTokens * padded) + bytes(threads * ScratchFloats(padded));
}

absl::Status StoredLinearCpu(const OpContext& ctx, const StoredLinearArgs& args) {
  ThreadPool& pool = *ctx.device.thread_pool();
  const StoredTileFn multiply = StoredTileFor(pool.isa());
  const int64_t padded = StoredPaddedCols(args.weight.cols);
  const int64_t most = std::min(args.x.dim(0), kMaxTokens);
  WorkspaceScope scope(ctx.workspace);
  ASSIGN_OR_RETURN(float* prepared, TakeFloats(scope, most * padded));
  ASSIGN_OR_RETURN(float* scratch, TakeFloats(scope, pool.threads() * ScratchFloats(padded)));
  const int64_t tiles = DivideUp(args.weight.rows, kStoredTileRows);
  const int64_t grain = DivideUp(kWeightsPerTask, kStoredTileRows * (padded + 1));
  for (int64_t first = 0; first < args.x.dim(0); first += most) {
    const int64_t tokens = std::min(most, args.x.dim(0) - first);
    const TensorView y = args.y.Rows(first, first + tokens);
    pool.ParallelFor(tokens, std::max<int64_t>(1, kPreparedPerTask / (padded + 1)),
                     [&](int64_t begin, int64_t end, int) {
                       PrepareStoredTokens(args.x, first + begin, first + end, args.rounding,
                                           prepared + begin * padded);
                     });
    pool.ParallelFor(tiles, grain, [&](int64_t begin, int64_t end, int thread) {
      float* const mine = scratch + thread * ScratchFloats(padded);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i * kStoredTileRows;
        const StoredTile tile = {.matrix = &args.weight,
                                 .row = row,
                                 .rows = std::min(kStoredTileRows, args.weight.rows - row),
                                 .x = prepared,
                                 .tokens = tokens,
                                 .widened = mine,
                                 .out = mine + kStoredTileRows * padded};
        multiply(tile);
        StoreTile(tile, y);
      }
    });
  }
  return absl::OkStatus();
}

}  // namespace millrace
