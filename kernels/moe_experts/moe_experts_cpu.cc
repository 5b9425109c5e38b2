// Each tile of rows is widened once for all tokens of a chunk that chose its expert: first the
// tiles of gate and up, whose results become the inputs of down, then those of down.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/moe_experts/moe_experts_impl.h"
#include "kernels/stored_matrix/stored_matrix_cpu.h"

namespace millrace {
namespace {

// Tokens that pass through at once. Bounds the workspace.
constexpr int64_t kMaxTokens = 256;
// Inputs that are worth another thread when preparing.
constexpr int64_t kPreparedPerTask = 16384;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The work of a chunk of tokens. A choice is a token and an expert of this rank; they are sorted by
// expert, then by token. Memory from the workspace.
struct Chunk {
  int64_t tokens = 0;
  int64_t most_choices = 0;  // tokens x K
  float* x = nullptr;        // [tokens, padded D] prepared
  float* hidden = nullptr;   // [choices, padded I], what goes into down
  int32_t* first = nullptr;  // [E + 1] where an expert's choices begin
  int32_t* order = nullptr;  // [choices] token of a choice
  float* weight = nullptr;   // [choices]
  int32_t* place = nullptr;  // [tokens, K] choice, -1: another rank's
  float* scratch = nullptr;  // a thread's ScratchFloats
};

// Widened rows of two matrices, and a tile of each with all choices.
int64_t ScratchFloats(const MoeExpertsShape& shape, int64_t tokens) {
  const int64_t padded = std::max(StoredPaddedCols(shape.hidden), StoredPaddedCols(shape.width));
  return kStoredTileRows * (padded + 2 * tokens * shape.chosen);
}

MoeExpertsShape ShapeOf(const MoeExpertsArgs& args) {
  return {.hidden = args.gate.cols,
          .width = args.gate.rows,
          .experts = args.gate.count,
          .chosen = args.experts.dim(1)};
}

template <typename T>
absl::Status Take(WorkspaceScope& scope, int64_t count, T*& out) {
  ASSIGN_OR_RETURN(void* memory, scope.Take(count * static_cast<int64_t>(sizeof(T))));
  out = static_cast<T*>(memory);
  return absl::OkStatus();
}

absl::StatusOr<Chunk> TakeChunk(WorkspaceScope& scope, const MoeExpertsShape& s, int64_t tokens,
                                int threads) {
  Chunk c;
  c.most_choices = tokens * s.chosen;
  RETURN_IF_ERROR(Take(scope, tokens * StoredPaddedCols(s.hidden), c.x));
  RETURN_IF_ERROR(Take(scope, c.most_choices * StoredPaddedCols(s.width), c.hidden));
  RETURN_IF_ERROR(Take(scope, s.experts + 1, c.first));
  RETURN_IF_ERROR(Take(scope, c.most_choices, c.order));
  RETURN_IF_ERROR(Take(scope, c.most_choices, c.weight));
  RETURN_IF_ERROR(Take(scope, c.most_choices, c.place));
  RETURN_IF_ERROR(Take(scope, threads * ScratchFloats(s, tokens), c.scratch));
  return c;
}

// Of this rank's experts, -1 where it is another's.
int64_t ExpertAt(const MoeExpertsArgs& args, int64_t token, int64_t k) {
  const int64_t expert = args.experts.as<int32_t>()[token * args.experts.stride(0) + k];
  const int64_t local = expert - args.first_expert;
  return local >= 0 && local < args.gate.count ? local : -1;
}

// Sorts the choices of tokens [begin, begin + chunk.tokens) by expert, by counting.
void SortChoices(const MoeExpertsArgs& args, int64_t begin, Chunk& c) {
  const int64_t experts = args.gate.count, chosen = args.experts.dim(1);
  std::fill(c.first, c.first + experts + 1, 0);
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t k = 0; k < chosen; ++k) {
      const int64_t e = ExpertAt(args, begin + t, k);
      if (e >= 0) ++c.first[e + 1];
    }
  }
  for (int64_t e = 0; e < experts; ++e) c.first[e + 1] += c.first[e];
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t k = 0; k < chosen; ++k) {
      const int64_t e = ExpertAt(args, begin + t, k);
      int32_t& place = c.place[t * chosen + k];
      place = e < 0 ? -1 : c.first[e]++;
      if (place < 0) continue;
      c.order[place] = static_cast<int32_t>(t);
      c.weight[place] = args.weights.as<float>()[(begin + t) * args.weights.stride(0) + k];
    }
  }
  // Each expert's begin has become the next one's.
  for (int64_t e = experts; e > 0; --e) c.first[e] = c.first[e - 1];
  c.first[0] = 0;
}

// silu(gate) * up, clamped first. NaN passes through every comparison.
float Gated(float gate, float up, float limit) {
  if (limit > 0) {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : (up < -limit ? -limit : up);
  }
  return gate / (1.0f + std::exp(-gate)) * up;
}

// Columns [row, row + kStoredTileRows) of hidden, of every choice.
void GateUpTile(const MoeExpertsArgs& args, const Chunk& c, StoredTileFn multiply, int64_t row,
                float* scratch) {
  const int64_t hidden_stride = StoredPaddedCols(args.gate.rows);
  float* const gate_out = scratch + kStoredTileRows * StoredPaddedCols(args.gate.cols);
  float* const up_out = gate_out + kStoredTileRows * c.most_choices;
  for (int64_t e = 0; e < args.gate.count; ++e) {
    const int64_t begin = c.first[e], count = c.first[e + 1] - begin;
    if (count == 0) continue;
    StoredTile tile = {.matrix = &args.gate,
                       .index = e,
                       .row = row,
                       .rows = std::min(kStoredTileRows, args.gate.rows - row),
                       .x = c.x,
                       .order = c.order + begin,
                       .tokens = count,
                       .widened = scratch,
                       .out = gate_out};
    multiply(tile);
    tile.matrix = &args.up;
    tile.out = up_out;
    multiply(tile);
    for (int64_t i = 0; i < count; ++i) {
      float* const h = c.hidden + (begin + i) * hidden_stride + row;
      for (int64_t r = 0; r < tile.rows; ++r) {
        const int64_t at = i * kStoredTileRows + r;
        h[r] = Gated(gate_out[at], up_out[at], args.limit) * c.weight[begin + i];
      }
    }
  }
}

// Columns [row, row + kStoredTileRows) of y, which begins at the chunk's first token.
void DownTile(const MoeExpertsArgs& args, const Chunk& c, StoredTileFn multiply, int64_t row,
              float* scratch) {
  const int64_t hidden_stride = StoredPaddedCols(args.down.cols);
  const int64_t rows = std::min(kStoredTileRows, args.down.rows - row);
  float* const out = scratch + kStoredTileRows * hidden_stride;
  for (int64_t e = 0; e < args.down.count; ++e) {
    const int64_t begin = c.first[e], count = c.first[e + 1] - begin;
    if (count == 0) continue;
    multiply({.matrix = &args.down,
              .index = e,
              .row = row,
              .rows = rows,
              .x = c.hidden + begin * hidden_stride,
              .tokens = count,
              .widened = scratch,
              .out = out + begin * kStoredTileRows});
  }
  const int64_t chosen = args.experts.dim(1);
  for (int64_t t = 0; t < c.tokens; ++t) {
    float* const y = args.y.as<float>() + t * args.y.stride(0) + row;
    std::fill(y, y + rows, 0.0f);
    for (int64_t k = 0; k < chosen; ++k) {
      const int32_t place = c.place[t * chosen + k];
      if (place < 0) continue;
      for (int64_t r = 0; r < rows; ++r) y[r] += out[place * kStoredTileRows + r];
    }
  }
}

ActivationRounding RoundingFor(const MoeExpertsArgs& args, const StoredMatrix& m) {
  return IsQuantised(m.format) ? args.rounding : ActivationRounding::kNone;
}

// Fills up hidden's rows, and rounds them where they are to be.
void FinishHidden(const MoeExpertsArgs& args, const Chunk& c, int64_t begin, int64_t end) {
  const int64_t width = args.down.cols, padded = StoredPaddedCols(width);
  for (int64_t i = begin; i < end; ++i) {
    float* const h = c.hidden + i * padded;
    std::fill(h + width, h + padded, 0.0f);
    if (RoundingFor(args, args.down) == ActivationRounding::kFp8Per128) RoundToFp8(h, width);
  }
}

}  // namespace

int64_t MoeExpertsCpuWorkspaceBytes(int threads, const MoeExpertsShape& s) {
  const auto bytes = [](int64_t words) { return DivideUp(words * 4, 256) * 256; };
  const int64_t choices = kMaxTokens * s.chosen;
  return bytes(kMaxTokens * StoredPaddedCols(s.hidden)) +
         bytes(choices * StoredPaddedCols(s.width)) + bytes(s.experts + 1) + 3 * bytes(choices) +
         bytes(threads * ScratchFloats(s, kMaxTokens));
}

absl::Status MoeExpertsCpu(const OpContext& ctx, const MoeExpertsArgs& args) {
  ThreadPool& pool = *ctx.device.thread_pool();
  const StoredTileFn multiply = StoredTileFor(pool.isa());
  const MoeExpertsShape shape = ShapeOf(args);
  const int64_t most = std::min(args.x.dim(0), kMaxTokens);
  WorkspaceScope scope(ctx.workspace);
  ASSIGN_OR_RETURN(Chunk c, TakeChunk(scope, shape, most, pool.threads()));
  const int64_t scratch = ScratchFloats(shape, most);
  const int64_t padded = StoredPaddedCols(shape.hidden);
  const auto for_tiles = [&](int64_t rows, auto body) {
    pool.ParallelFor(DivideUp(rows, kStoredTileRows), 1, [&](int64_t a, int64_t b, int thread) {
      for (int64_t i = a; i < b; ++i) body(i * kStoredTileRows, c.scratch + thread * scratch);
    });
  };
  MoeExpertsArgs part = args;
  for (int64_t first = 0; first < args.x.dim(0); first += most) {
    c.tokens = std::min(most, args.x.dim(0) - first);
    part.y = args.y.Rows(first, first + c.tokens);
    SortChoices(args, first, c);
    const int64_t grain = std::max<int64_t>(1, kPreparedPerTask / (padded + 1));
    pool.ParallelFor(c.tokens, grain, [&](int64_t a, int64_t b, int) {
      PrepareStoredTokens(args.x, first + a, first + b, RoundingFor(args, args.gate),
                          c.x + a * padded);
    });
    for_tiles(shape.width,
              [&](int64_t row, float* mine) { GateUpTile(part, c, multiply, row, mine); });
    pool.ParallelFor(c.first[shape.experts], grain,
                     [&](int64_t a, int64_t b, int) { FinishHidden(args, c, a, b); });
    for_tiles(shape.hidden,
              [&](int64_t row, float* mine) { DownTile(part, c, multiply, row, mine); });
  }
  return absl::OkStatus();
}

}  // namespace millrace
