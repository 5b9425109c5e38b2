// One tile of attention with an online softmax over blocks of keys, compiled once per instruction
// set: include it inside an anonymous namespace of millrace, after dtype.h,
// paged_attention_cpu_tile.h and e4m3.h. No include guard on purpose.

#include "kernels/paged_attention/paged_attention_cpu_products.h"

constexpr float kMinusInfinity = -__builtin_inff();

// Scratch of a tile, and its running softmax: maximum, sum and unnormalised output of each row.
struct TileState {
  float* q;        // scaled queries: rows, or panels (see PackPanels)
  float* acc;      // [rows][D]
  float* k;        // widened keys of a block
  float* v;        // widened values of a block
  float* scores;   // [kBlock][kBlock]
  float* maximum;  // [rows], and so the next two
  float* sum;
  float* rescale;  // what the last block's new maximum did to the sums before it
  int rows;
};

inline TileState StartTile(const AttentionTile& tile) {
  TileState s;
  const int64_t block = int64_t{kBlock} * tile.head_dim;
  s.q = tile.scratch;
  s.acc = s.q + block;
  s.k = s.acc + block;
  s.v = s.k + block;
  s.scores = s.v + block;
  s.maximum = s.scores + kBlock * kBlock;
  s.sum = s.maximum + kBlock;
  s.rescale = s.sum + kBlock;
  s.rows = tile.queries * tile.group;
  for (int64_t i = 0; i < block; ++i) s.acc[i] = 0;
  for (int r = 0; r < kBlock; ++r) {
    s.maximum[r] = kMinusInfinity;
    s.sum[r] = 0;
  }
  return s;
}

// Where a block's keys and values lie.
template <typename C>
struct BlockRows {
  const C* k[kBlock];
  const C* v[kBlock];
  int keys;
};

// Where the rows of a block begin in the cache.
template <typename T>
void FindRows(const AttentionTile& tile, const AttentionPages& from, int begin, int keys,
              const T** rows) {
  int page = begin / tile.page_tokens;
  int offset = begin % tile.page_tokens;
  for (int j = 0; j < keys; offset = 0, ++page) {
    const T* row = static_cast<const T*>(from.head) + tile.pages[page] * from.page_stride +
                   offset * from.token_stride;
    const int end = keys - j < tile.page_tokens - offset ? keys : j + tile.page_tokens - offset;
    for (; j < end; ++j, row += from.token_stride) rows[j] = row;
  }
}

template <typename T>
const T* RowOf(const AttentionRows& rows, int group, int row) {
  return static_cast<const T*>(rows.first) + row / group * rows.token_stride +
         row % group * rows.head_stride;
}

template <int kLanes, typename Q>
void PackRows(const AttentionTile& tile, TileState& s) {
  for (int r = 0; r < s.rows; ++r) {
    const Q* q = RowOf<Q>(tile.q, tile.group, r);
    for (int d = 0; d < tile.head_dim; d += kLanes) {
      simd::Store<kLanes>(s.q + r * tile.head_dim + d,
                          simd::Load<kLanes>(q + d) * simd::Set<kLanes>(tile.scale));
    }
  }
}

// Brings rows of floats into the order of simd::LoadPair(const BFloat16*), and back.
template <int kLanes, bool kBack>
void PairRows(const AttentionTile& tile, int rows, float* x) {
  for (int r = 0; r < rows; ++r, x += tile.head_dim) {
    for (int d = 0; d + 2 * kLanes <= tile.head_dim; d += 2 * kLanes) {
      float from[2 * kLanes];
      for (int i = 0; i < 2 * kLanes; ++i) from[i] = x[d + i];
      for (int i = 0; i < 2 * kLanes; ++i) {
        const int paired = i / 2 + i % 2 * kLanes;
        x[d + (kBack ? i : paired)] = from[kBack ? paired : i];
      }
    }
  }
}

// Panels of 2 * kLanes rows, each [D][2 * kLanes]; rows past the last are zero.
template <int kLanes, typename Q>
void PackPanels(const AttentionTile& tile, TileState& s) {
  constexpr int kPanel = 2 * kLanes;
  const int panels = (s.rows + kPanel - 1) / kPanel;
  for (int r = 0; r < panels * kPanel; ++r) {
    float* to = s.q + r / kPanel * kPanel * tile.head_dim + r % kPanel;
    float row[256];
    for (int d = 0; d < tile.head_dim; d += kLanes) {
      simd::Store<kLanes>(row + d, r < s.rows
                                       ? simd::Load<kLanes>(RowOf<Q>(tile.q, tile.group, r) + d) *
                                             simd::Set<kLanes>(tile.scale)
                                       : simd::F<kLanes>{});
    }
    for (int d = 0; d < tile.head_dim; ++d) to[d * kPanel] = row[d];
  }
}

// ---- few rows: scores are [row][key] ----

// Scores of kRows rows; meanwhile brings in the values of the block.
template <int kLanes, int kRows, typename C>
void DotBlock(const AttentionTile& tile, TileState& s, int row, const BlockRows<C>& block) {
  const int keys = block.keys;
  for (int j = 0; j < keys; j += 4) {
    const C* four[4];
    for (int i = 0; i < 4; ++i) {
      four[i] = block.k[j + i < keys ? j + i : keys - 1];
      if (row == 0 && j + i < keys) Prefetch(block.v[j + i], tile.head_dim);
    }
    DotFourKeys<kLanes, kRows>(s.q + row * tile.head_dim, tile.head_dim, four,
                               s.scores + row * kBlock + j);
  }
}

// Turns the scores of row r into weights, of which the first `seen` count.
template <int kLanes>
void SoftmaxRow(TileState& s, int r, int seen, int keys) {
  float* w = s.scores + r * kBlock;
  for (int j = seen < 0 ? 0 : seen; j < kBlock; ++j) w[j] = kMinusInfinity;
  auto top = simd::Load<kLanes>(w);
  for (int j = kLanes; j < keys; j += kLanes) top = simd::Max(top, simd::Load<kLanes>(w + j));
  const float highest = simd::MaxLane(top);
  const float maximum = highest > s.maximum[r] ? highest : s.maximum[r];
  const auto base = simd::Set<kLanes>(maximum == kMinusInfinity ? 0.0f : maximum);
  simd::F<kLanes> sum = {};
  for (int j = 0; j < keys; j += kLanes) {
    const auto p = simd::Exp(simd::Load<kLanes>(w + j) - base);
    simd::Store<kLanes>(w + j, p);
    sum += p;
  }
  s.rescale[r] = simd::Exp(simd::Set<kLanes>(s.maximum[r]) - base)[0];
  s.sum[r] = s.sum[r] * s.rescale[r] + simd::Sum(sum);
  s.maximum[r] = maximum;
}

// How many of the rows from `row` on to take together, so that their sums fit the registers.
inline int RowStep(const TileState& s, int row) {
  const int left = s.rows - row;
  return left >= 5 || left == 3 ? 3 : left >= 2 ? 2 : 1;
}

// The block after this one, whose keys the values' product brings in.
template <typename C>
struct BlockAhead {
  const C* k[kBlock];
  bool any;
};

template <typename C>
BlockAhead<C> LookAhead(const AttentionTile& tile, int begin) {
  BlockAhead<C> next;
  next.any = begin + 2 * kBlock <= tile.kv_end;  // whole: any part of this block's keys covers it
  if (next.any) FindRows(tile, tile.k, begin + kBlock, kBlock, next.k);
  return next;
}

template <int kLanes, typename C>
void FewRowsBlock(const AttentionTile& tile, TileState& s, int begin, int keys) {
  BlockRows<C> block;
  block.keys = keys;
  FindRows(tile, tile.k, begin, keys, block.k);
  FindRows(tile, tile.v, begin, keys, block.v);
  const BlockAhead<C> next = LookAhead<C>(tile, begin);
  for (int r = 0, step = 0; r < s.rows; r += step) {
    step = RowStep(s, r);
    if (step == 3) DotBlock<kLanes, 3>(tile, s, r, block);
    if (step == 2) DotBlock<kLanes, 2>(tile, s, r, block);
    if (step == 1) DotBlock<kLanes, 1>(tile, s, r, block);
  }
  for (int r = 0; r < s.rows; ++r) {
    const int seen = tile.visible + r / tile.group - begin;
    SoftmaxRow<kLanes>(s, r, seen < keys ? seen : keys, keys);
  }
  for (int r = 0, step = 0; r < s.rows; r += step) {
    step = RowStep(s, r);
    const Mix<C> mix = {s.scores + r * kBlock, block.v, keys, s.rescale + r,
                        s.acc + r * tile.head_dim};
    const C* const* ahead = r == 0 && next.any ? next.k : nullptr;
    if (step == 3) MixRows<kLanes, 3, 2, false>(mix, tile.head_dim, ahead);
    if (step == 2) MixRows<kLanes, 2, 4, false>(mix, tile.head_dim, ahead);
    if (step == 1) MixRows<kLanes, 1, 8, false>(mix, tile.head_dim, ahead);
  }
}

// ---- many rows: scores are [key][row] ----

// Widened copies of a block's rows, one behind the other.
template <int kLanes, typename C>
void WidenRows(const C* const* narrow, int keys, int head_dim, float* wide) {
  for (int j = 0; j < keys; ++j, wide += head_dim) {
    for (int d = 0; d < head_dim; d += kLanes) {
      simd::Store<kLanes>(wide + d, simd::Load<kLanes>(narrow[j] + d));
    }
  }
}

// Where the block's float rows are: in the cache, or widened in scratch.
template <int kLanes, typename C>
BlockRows<float> FindFloatRows(const AttentionTile& tile, const TileState& s, int begin, int keys) {
  BlockRows<float> floats;
  floats.keys = keys;
  if constexpr (sizeof(C) == sizeof(float)) {
    FindRows(tile, tile.k, begin, keys, floats.k);
    FindRows(tile, tile.v, begin, keys, floats.v);
  } else {
    BlockRows<C> narrow;
    FindRows(tile, tile.k, begin, keys, narrow.k);
    FindRows(tile, tile.v, begin, keys, narrow.v);
    WidenRows<kLanes>(narrow.k, keys, tile.head_dim, s.k);
    WidenRows<kLanes>(narrow.v, keys, tile.head_dim, s.v);
    for (int j = 0; j < keys; ++j) {
      floats.k[j] = s.k + j * tile.head_dim;
      floats.v[j] = s.v + j * tile.head_dim;
    }
  }
  return floats;
}

template <int kLanes, int kKeys>
inline void ScoreRest(const float* q, int head_dim, const float* const* k, int keys,
                      float* scores) {
  if constexpr (kKeys > 0) {
    if (keys == kKeys) return ScorePanel<kLanes, kKeys>(q, head_dim, k, scores);
    ScoreRest<kLanes, kKeys - 1>(q, head_dim, k, keys, scores);
  }
}

// Keys scored together, two vectors of sums each: as many as the registers hold.
template <int kLanes>
constexpr int kScoreKeys = kLanes == 16 ? 8 : 6;

template <int kLanes>
void ScoreBlock(const AttentionTile& tile, TileState& s, const float* const* k, int keys) {
  constexpr int kKeys = kScoreKeys<kLanes>;
  for (int r = 0; r < s.rows; r += 2 * kLanes) {
    const float* q = s.q + r * tile.head_dim;
    int j = 0;
    for (; j + kKeys <= keys; j += kKeys) {
      ScorePanel<kLanes, kKeys>(q, tile.head_dim, k + j, s.scores + j * kBlock + r);
    }
    ScoreRest<kLanes, kKeys - 1>(q, tile.head_dim, k + j, keys - j, s.scores + j * kBlock + r);
  }
}

// Turns the scores of the kLanes rows from r on into weights. seen[i] keys of the block count for
// row r + i; kMasked says that for some row these are not all.
template <int kLanes, bool kMasked>
void SoftmaxLanes(TileState& s, int r, simd::I<kLanes> seen, int keys) {
  float* w = s.scores + r;
  const auto before = simd::Load<kLanes>(s.maximum + r);
  auto maximum = before;
  for (int j = 0; j < keys; ++j) {
    auto x = simd::Load<kLanes>(w + j * kBlock);
    if constexpr (kMasked) {
      x = seen > j ? x : simd::Set<kLanes>(kMinusInfinity);
      simd::Store<kLanes>(w + j * kBlock, x);
    }
    maximum = simd::Max(x, maximum);
  }
  // A row that has seen no key yet: any finite base gives weights of zero.
  const auto base = maximum == simd::Set<kLanes>(kMinusInfinity) ? simd::F<kLanes>{} : maximum;
  simd::F<kLanes> sum = {};
  for (int j = 0; j < keys; ++j) {
    const auto p = simd::Exp(simd::Load<kLanes>(w + j * kBlock) - base);
    simd::Store<kLanes>(w + j * kBlock, p);
    sum += p;
  }
  const auto rescale = simd::Exp(before - base);
  simd::Store<kLanes>(s.rescale + r, rescale);
  simd::Store<kLanes>(s.sum + r, simd::Load<kLanes>(s.sum + r) * rescale + sum);
  simd::Store<kLanes>(s.maximum + r, maximum);
}

inline Mix<float> MixFrom(const AttentionTile& tile, const TileState& s, int r,
                          const float* const* v, int keys) {
  return {s.scores + r, v, keys, s.rescale + r, s.acc + r * tile.head_dim};
}

template <int kLanes, int kRows>
inline void MixRest(const Mix<float>& mix, int rows, int head_dim) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return MixRows<kLanes, kRows, 2, true>(mix, head_dim);
    MixRest<kLanes, kRows - 1>(mix, rows, head_dim);
  }
}

template <int kLanes, typename C>
void ManyRowsBlock(const AttentionTile& tile, TileState& s, int begin, int keys) {
  const BlockRows<float> block = FindFloatRows<kLanes, C>(tile, s, begin, keys);
  ScoreBlock<kLanes>(tile, s, block.k, keys);
  const bool masked = begin + keys > tile.visible;
  for (int r = 0; r < s.rows; r += kLanes) {
    simd::I<kLanes> seen = {};
    if (masked) {
      for (int i = 0; i < kLanes; ++i) seen[i] = tile.visible + (r + i) / tile.group - begin;
      SoftmaxLanes<kLanes, true>(s, r, seen, keys);
    } else {
      SoftmaxLanes<kLanes, false>(s, r, seen, keys);
    }
  }
  constexpr int kRows = kScoreKeys<kLanes>;
  int r = 0;
  for (; r + kRows <= s.rows; r += kRows) {
    MixRows<kLanes, kRows, 2, true>(MixFrom(tile, s, r, block.v, keys), tile.head_dim);
  }
  MixRest<kLanes, kRows - 1>(MixFrom(tile, s, r, block.v, keys), s.rows - r, tile.head_dim);
}

// ---- a tile ----

template <int kLanes, typename Q>
void StoreTile(const AttentionTile& tile, const TileState& s) {
  for (int r = 0; r < s.rows; ++r) {
    const float* acc = s.acc + r * tile.head_dim;
    if (tile.partial != nullptr) {
      float* to = tile.partial + int64_t{r} * (tile.head_dim + 2);
      for (int d = 0; d < tile.head_dim; ++d) to[d] = acc[d];
      to[tile.head_dim] = s.maximum[r];
      to[tile.head_dim + 1] = s.sum[r];
      continue;
    }
    Q* out = const_cast<Q*>(RowOf<Q>(tile.out, tile.group, r));
    const auto inverse = simd::Set<kLanes>(tile.v_scale / s.sum[r]);
    for (int d = 0; d < tile.head_dim; d += kLanes) {
      simd::Store<kLanes>(out + d, simd::Load<kLanes>(acc + d) * inverse);
    }
  }
}

// Up to this many rows a dot product per row is cheaper than rows along the lanes.
template <int kLanes>
constexpr int kFewRows = kLanes == 16 ? 8 : 5;

template <int kLanes, typename Q, typename C>
void Attend(const AttentionTile& tile) {
  TileState s = StartTile(tile);
  const bool few = s.rows <= kFewRows<kLanes>;
  constexpr bool kPaired = sizeof(C) == sizeof(BFloat16);
  if (few) {
    PackRows<kLanes, Q>(tile, s);
    if (kPaired) PairRows<kLanes, false>(tile, s.rows, s.q);
  } else {
    PackPanels<kLanes, Q>(tile, s);
  }
  for (int begin = tile.kv_begin; begin < tile.kv_end; begin += kBlock) {
    const int keys = begin + kBlock < tile.kv_end ? kBlock : tile.kv_end - begin;
    if (few) {
      FewRowsBlock<kLanes, C>(tile, s, begin, keys);
    } else {
      ManyRowsBlock<kLanes, C>(tile, s, begin, keys);
    }
  }
  if (few && kPaired) PairRows<kLanes, true>(tile, s.rows, s.acc);
  StoreTile<kLanes, Q>(tile, s);
}

template <int kLanes>
constexpr AttentionKernels kKernels = {
    .attend = {{Attend<kLanes, float, float>, Attend<kLanes, float, BFloat16>,
                Attend<kLanes, float, E4M3>},
               {Attend<kLanes, BFloat16, float>, Attend<kLanes, BFloat16, BFloat16>,
                Attend<kLanes, BFloat16, E4M3>}},
    .lanes = kLanes,
};
