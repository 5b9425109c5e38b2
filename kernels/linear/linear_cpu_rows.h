// The two CPU kernels of Linear for one vector width. Included inside an anonymous namespace of
// millrace by one file per instruction set, after linear_impl.h and simd.h.
//
// Both work on tiles of 4 outputs x a few tokens. A tile keeps one vector of partial sums per
// (output, token); vector i of the inputs is added to it in order of i, and the lanes are summed at
// the end. Tile shapes, blocks and threads change which sums are kept side by side but not the
// order within one, so they cannot change a result.
//
// bf16 weights are widened two at a time: in a 32-bit lane the even input is the low half (shifted
// up) and the odd one the high half (masked). The prepared x has each group of 2 x lanes inputs
// sorted the same way, evens first.

inline constexpr int kTileRows = 4;

// Tokens of the widest tile: as many sums as leave registers for the operands.
template <int kLanes>
inline constexpr int kTileTokens = kLanes == 16  ? 6
                                   : kLanes == 8 ? 3
                                                 : 2;
// The streaming kernel also holds both halves of the tokens' inputs.
template <int kLanes, typename W>
inline constexpr int kStreamTokens = kLanes == 16               ? 4
                                     : std::is_same_v<W, float> ? 3
                                                                : 2;

template <int kLanes, int kRows, int kTokens>
struct Sums {
  simd::F<kLanes> v[kRows][kTokens];
};

// Inputs that one step of a kernel takes.
template <int kLanes, typename W>
inline constexpr int kStep = std::is_same_v<W, float> ? kLanes : 2 * kLanes;

template <int kLanes>
[[gnu::always_inline]] inline void Widen(const BFloat16* w, simd::F<kLanes>* even,
                                         simd::F<kLanes>* odd) {
  typename simd::Types<kLanes>::U u;
  __builtin_memcpy(&u, w, sizeof(u));
  *even = reinterpret_cast<simd::F<kLanes>>(u << 16);
  *odd = reinterpret_cast<simd::F<kLanes>>(u & 0xffff0000u);
}

// Adds one step of weights times inputs.
template <int kLanes, int kRows, int kTokens>
[[gnu::always_inline]] inline void AddStep(const float* w, int64_t w_stride, const float* x,
                                           int64_t x_stride, Sums<kLanes, kRows, kTokens>& sums) {
  simd::F<kLanes> in[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) in[t] = simd::Load<kLanes>(x + t * x_stride);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const simd::F<kLanes> row = simd::Load<kLanes>(w + r * w_stride);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums.v[r][t] += row * in[t];
  }
}

template <int kLanes, int kRows, int kTokens>
[[gnu::always_inline]] inline void AddStep(const BFloat16* w, int64_t w_stride, const float* x,
                                           int64_t x_stride, Sums<kLanes, kRows, kTokens>& sums) {
  simd::F<kLanes> even_in[kTokens], odd_in[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    even_in[t] = simd::Load<kLanes>(x + t * x_stride);
    odd_in[t] = simd::Load<kLanes>(x + t * x_stride + kLanes);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    simd::F<kLanes> even, odd;
    Widen<kLanes>(w + r * w_stride, &even, &odd);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      sums.v[r][t] += even * even_in[t];
      sums.v[r][t] += odd * odd_in[t];
    }
  }
}

// The sums of four vectors. Pairs of lanes at distance 2, then 1, then quads in ascending order.
template <int kLanes>
[[gnu::always_inline]] inline simd::F<4> Sum4(simd::F<kLanes> a, simd::F<kLanes> b,
                                              simd::F<kLanes> c, simd::F<kLanes> d) {
  using Ints = simd::I<kLanes>;
  Ints low, high, even, odd;  // constants once unrolled: unpacks within each quad
  for (int i = 0; i < kLanes; i += 4) {
    for (int j = 0; j < 4; ++j) {
      low[i + j] = i + j / 2 + (j % 2) * kLanes;
      high[i + j] = low[i + j] + 2;
      even[i + j] = i + j % 2 + (j / 2) * kLanes;
      odd[i + j] = even[i + j] + 2;
    }
  }
  const simd::F<kLanes> ab = __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
  const simd::F<kLanes> cd = __builtin_shuffle(c, d, low) + __builtin_shuffle(c, d, high);
  return simd::SumQuads(__builtin_shuffle(ab, cd, even) + __builtin_shuffle(ab, cd, odd));
}

template <int kLanes>
[[gnu::always_inline]] inline float Sum(simd::F<kLanes> a) {
  return Sum4<kLanes>(a, a, a, a)[0];
}

inline void StoreOutput(const LinearOperands& a, int64_t token, int64_t output, float sum) {
  if (a.bias != nullptr) sum += a.bias[output];
  const int64_t at = token * a.y_stride + output;
  if (a.y_bf16) {
    static_cast<BFloat16*>(a.y)[at] = ToBFloat16(sum);
  } else {
    static_cast<float*>(a.y)[at] = sum;
  }
}

template <int kLanes, int kTokens>
[[gnu::always_inline]] inline void StoreTile(const LinearOperands& a, int64_t token, int64_t output,
                                             const Sums<kLanes, kTileRows, kTokens>& sums) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    simd::F<4> sum = Sum4<kLanes>(sums.v[0][t], sums.v[1][t], sums.v[2][t], sums.v[3][t]);
    if (a.bias != nullptr) sum += simd::Load<4>(a.bias + output);
    const int64_t at = (token + t) * a.y_stride + output;
    if (a.y_bf16) {
      simd::Store<4>(static_cast<BFloat16*>(a.y) + at, sum);
    } else {
      simd::Store<4>(static_cast<float*>(a.y) + at, sum);
    }
  }
}

// ---- Few tokens ------------------------------------------------------------------------------

// How far ahead along its row a weight is asked for.
template <typename W>
inline constexpr int64_t kAhead = 1024 / sizeof(W);

// Outputs first, first + step, ... of one tile.
struct TileRows {
  int64_t first, step;
};

template <int kLanes, typename W, int kRows, int kTokens>
inline void StreamTile(const LinearOperands& a, int64_t token, TileRows rows) {
  constexpr int kInputs = kStep<kLanes, W>;
  Sums<kLanes, kRows, kTokens> sums = {};
  const int64_t w_stride = rows.step * a.weight_stride;
  const int64_t x_stride = LinearPaddedInputs(a.inputs);
  const W* w = static_cast<const W*>(a.weight) + rows.first * a.weight_stride;
  const float* x = a.x + token * x_stride;
  int64_t i = 0;
  for (; i + kInputs <= a.inputs; i += kInputs) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) __builtin_prefetch(w + r * w_stride + i + kAhead<W>, 0, 3);
    AddStep<kLanes, kRows, kTokens>(w + i, w_stride, x + i, x_stride, sums);
  }
  if (i < a.inputs) {
    W last[kRows][kInputs] = {};
    for (int r = 0; r < kRows; ++r) {
      for (int64_t j = i; j < a.inputs; ++j) last[r][j - i] = w[r * w_stride + j];
    }
    AddStep<kLanes, kRows, kTokens>(&last[0][0], kInputs, x + i, x_stride, sums);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    if constexpr (kRows == kTileRows) {
      const simd::F<4> sum = Sum4<kLanes>(sums.v[0][t], sums.v[1][t], sums.v[2][t], sums.v[3][t]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        StoreOutput(a, token + t, rows.first + r * rows.step, sum[r]);
      }
    } else {
      StoreOutput(a, token + t, rows.first, Sum<kLanes>(sums.v[0][t]));
    }
  }
}

template <int kLanes, typename W, int kRows>
[[gnu::always_inline]] inline void StreamRows(const LinearOperands& a, TileRows rows) {
  constexpr int kMost = kStreamTokens<kLanes, W>;
  int64_t t = 0;
  for (; t + kMost <= a.tokens; t += kMost) StreamTile<kLanes, W, kRows, kMost>(a, t, rows);
  if constexpr (kMost > 3) {
    if (a.tokens - t == 3) return StreamTile<kLanes, W, kRows, 3>(a, t, rows);
  }
  if constexpr (kMost > 2) {
    if (a.tokens - t == 2) return StreamTile<kLanes, W, kRows, 2>(a, t, rows);
  }
  if (a.tokens - t == 1) StreamTile<kLanes, W, kRows, 1>(a, t, rows);
}

// The rows of a tile lie a quarter of the range apart, so that the weights are read as four long
// sequential streams, which the hardware prefetchers follow: one thread reads K = 576 at 27 GB/s
// instead of 14 with four neighbouring rows (bf16, one token; AMD EPYC 7003, AVX2, 2026-11-29).
template <int kLanes, typename W>
void Stream(const LinearOperands& a, int64_t begin, int64_t end) {
  const int64_t step = (end - begin) / kTileRows;
  for (int64_t n = begin; n < begin + step; ++n) StreamRows<kLanes, W, kTileRows>(a, {n, step});
  for (int64_t n = begin + kTileRows * step; n < end; ++n) StreamRows<kLanes, W, 1>(a, {n, 1});
}

// ---- Many tokens -----------------------------------------------------------------------------

// Inputs [input, input + count) of rows [row, row + kLinearBlockRows) of weights W.
template <typename W>
struct WeightBlock {
  int64_t row, input, count;
};

// Widens a block, in the order of the prepared x, to w[kLinearBlockRows][count + kLinearRowGap].
// Past the last row and input there are zeros.
template <int kLanes>
void WidenBlock(const LinearOperands& a, WeightBlock<float> block, float* w) {
  const auto [row, i, count] = block;
  const int64_t have = std::min(count, a.inputs - i);
  for (int r = 0; r < kLinearBlockRows; ++r, w += count + kLinearRowGap) {
    if (row + r >= a.outputs) {
      __builtin_memset(w, 0, static_cast<size_t>(count) * sizeof(float));
      continue;
    }
    const float* from = static_cast<const float*>(a.weight) + (row + r) * a.weight_stride + i;
    __builtin_memcpy(w, from, static_cast<size_t>(have) * sizeof(float));
    __builtin_memset(w + have, 0, static_cast<size_t>(count - have) * sizeof(float));
  }
}

template <int kLanes>
void WidenBlock(const LinearOperands& a, WeightBlock<BFloat16> block, float* w) {
  constexpr int kInputs = 2 * kLanes;
  const auto [row, i, count] = block;
  const int64_t have = std::min(count, a.inputs - i);
  for (int r = 0; r < kLinearBlockRows; ++r, w += count + kLinearRowGap) {
    if (row + r >= a.outputs) {
      __builtin_memset(w, 0, static_cast<size_t>(count) * sizeof(float));
      continue;
    }
    const BFloat16* from = static_cast<const BFloat16*>(a.weight) + (row + r) * a.weight_stride + i;
    for (int64_t j = 0; j < count; j += kInputs) {
      BFloat16 last[kInputs] = {};
      const BFloat16* source = from + j;
      if (j + kInputs > have) {
        for (int64_t k = j; k < have; ++k) last[k - j] = from[k];
        source = last;
      }
      simd::F<kLanes> even, odd;
      Widen<kLanes>(source, &even, &odd);
      simd::Store<kLanes>(w + j, even);
      simd::Store<kLanes>(w + j + kLanes, odd);
    }
  }
}

// One block of outputs over one range of the inputs.
struct BlockRange {
  const float* w;  // [kLinearBlockRows][count + kLinearRowGap], widened
  const float* x;  // [tokens][count]
  int64_t output;  // first of the block
  int64_t count;   // inputs
  float* partial;  // [tokens][kLinearBlockRows][kLanes] sums between two ranges
  int64_t first_token;
  bool first, last;  // range
};

template <int kLanes, int kTokens>
inline void BlockTile(const LinearOperands& a, const BlockRange& range, int64_t token, int row) {
  Sums<kLanes, kTileRows, kTokens> sums = {};
  float* partial = range.partial + ((token - range.first_token) * kLinearBlockRows + row) * kLanes;
  if (!range.first) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        sums.v[r][t] = simd::Load<kLanes>(partial + (t * kLinearBlockRows + r) * kLanes);
      }
    }
  }
  const int64_t w_stride = range.count + kLinearRowGap;
  const float* w = range.w + row * w_stride;
  const float* x = range.x + token * range.count;
  for (int64_t i = 0; i < range.count; i += kLanes) {
    AddStep<kLanes, kTileRows, kTokens>(w + i, w_stride, x + i, range.count, sums);
  }
  if (!range.last) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        simd::Store<kLanes>(partial + (t * kLinearBlockRows + r) * kLanes, sums.v[r][t]);
      }
    }
    return;
  }
  const int64_t output = range.output + row;
  if (output + kTileRows <= a.outputs) {
    StoreTile<kLanes, kTokens>(a, token, output, sums);
    return;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
    if (output + r >= a.outputs) return;
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      StoreOutput(a, token + t, output + r, Sum<kLanes>(sums.v[r][t]));
    }
  }
}

template <int kLanes, int kTokens>
[[gnu::always_inline]] inline void BlockTokens(const LinearOperands& a, const BlockRange& range,
                                               int64_t token) {
  for (int row = 0; row < kLinearBlockRows; row += kTileRows) {
    BlockTile<kLanes, kTokens>(a, range, token, row);
  }
}

template <int kLanes, typename W>
void Block(const LinearOperands& a, const LinearBlocks& blocks, int64_t token_block, int64_t block,
           float* scratch) {
  constexpr int kMost = kTileTokens<kLanes>;
  const int64_t begin = token_block * blocks.tokens;
  const int64_t end = std::min(begin + blocks.tokens, a.tokens);
  const int64_t padded = LinearPaddedInputs(a.inputs);
  BlockRange range = {};
  range.w = scratch;
  range.partial = scratch + kLinearBlockRows * (blocks.inputs + kLinearRowGap);
  range.output = block * kLinearBlockRows;
  range.first_token = begin;
  for (int64_t i = 0; i < padded; i += blocks.inputs) {
    range.x = a.x + i * a.tokens;
    range.count = std::min(blocks.inputs, padded - i);
    range.first = i == 0;
    range.last = i + blocks.inputs >= padded;
    WidenBlock<kLanes>(a, WeightBlock<W>{range.output, i, range.count}, scratch);
    int64_t t = begin;
    for (; t + kMost <= end; t += kMost) BlockTokens<kLanes, kMost>(a, range, t);
    for (; kMost > 3 && t + 3 <= end; t += 3) BlockTokens<kLanes, 3>(a, range, t);
    for (; kMost > 2 && t + 2 <= end; t += 2) BlockTokens<kLanes, 2>(a, range, t);
    for (; t < end; ++t) BlockTokens<kLanes, 1>(a, range, t);
  }
}

// ---- Inputs ----------------------------------------------------------------------------------

template <int kLanes, typename W, typename X>
void Prepare(const X* x, int64_t inputs, int64_t padded, float* prepared) {
  constexpr int kInputs = 2 * kLanes;
  using Ints = simd::I<kLanes>;
  Ints evens = {};
  for (int i = 0; i < kLanes; ++i) evens[i] = 2 * i;
  for (int64_t i = 0; i < padded; i += kInputs) {
    X last[kInputs] = {};
    const X* from = x + i;
    if (i + kInputs > inputs) {
      for (int64_t j = i; j < inputs; ++j) last[j - i] = x[j];
      from = last;
    }
    simd::F<kLanes> a = simd::Load<kLanes>(from), b = simd::Load<kLanes>(from + kLanes);
    if constexpr (!std::is_same_v<W, float>) {
      const simd::F<kLanes> even = __builtin_shuffle(a, b, evens);
      b = __builtin_shuffle(a, b, evens + 1);
      a = even;
    }
    simd::Store<kLanes>(prepared + i, a);
    simd::Store<kLanes>(prepared + i + kLanes, b);
  }
}

template <int kLanes, typename W>
inline constexpr LinearKernels kKernels = {Prepare<kLanes, W, float>, Prepare<kLanes, W, BFloat16>,
                                           Stream<kLanes, W>, Block<kLanes, W>};
