// Attention of one tile with an online softmax over blocks of keys, compiled once per instruction
// set: include it inside an anonymous namespace of millrace, after latent_attention_cpu_tile.h,
// latent_row.h and simd.h. No include guard on purpose.
//
// Heads lie along the lanes of a panel, so no head's arithmetic sees another's; the blocks are cut
// from the token's own list of keys, so none sees another token's.

#include "kernels/latent_cache/read_row_cpu.h"
#include "kernels/paged_attention/paged_attention_cpu_products.h"

static_assert(kBlock == kLatentBlock);

template <int kLanes>
constexpr int kPanel = 2 * kLanes;

struct LatentState {
  float* q;        // panels of kPanel heads, [D][kPanel], scaled
  float* acc;      // [heads][D], unnormalised
  float* maximum;  // [heads], and so the next two
  float* sum;
  float* rescale;  // what the last block's new maximum did to the sums before it
  float* keys;     // [kBlock][D + kLatentRowPadding]
  float* scores;   // [kBlock][kBlock], [key][head of the panel]
  const float* rows[kBlock];
};

inline LatentState LayOut(const LatentTile& tile) {
  const int64_t heads = LatentPaddedHeads(tile.heads);
  LatentState s;
  s.q = tile.scratch;
  s.acc = s.q + heads * tile.dim;
  s.maximum = s.acc + heads * tile.dim;
  s.sum = s.maximum + heads;
  s.rescale = s.sum + heads;
  s.keys = s.rescale + heads;
  s.scores = s.keys + kBlock * (tile.dim + kLatentRowPadding);
  for (int j = 0; j < kBlock; ++j) s.rows[j] = s.keys + j * (tile.dim + kLatentRowPadding);
  return s;
}

inline float Widen(float x) { return x; }
inline float Widen(BFloat16 x) { return ToFloat(x); }

// The sink is a key that comes first and has no value.
template <int kLanes, typename T>
LatentState Start(const LatentTile& tile) {
  LatentState s = LayOut(tile);
  const int64_t heads = (tile.heads + kPanel<kLanes> - 1) / kPanel<kLanes> * kPanel<kLanes>;
  for (int64_t n = 0; n < heads; ++n) {
    const bool is_head = n < tile.heads;
    const T* q = static_cast<const T*>(tile.q) + (is_head ? n : 0) * tile.q_head_stride;
    float* to = s.q + n / kPanel<kLanes> * kPanel<kLanes> * tile.dim + n % kPanel<kLanes>;
    for (int d = 0; d < tile.dim; ++d) {
      to[d * kPanel<kLanes>] = is_head ? Widen(q[d]) * tile.scale : 0.0f;
    }
    s.maximum[n] = is_head ? tile.sinks[n] : 0.0f;
    s.sum[n] = 1;
  }
  for (int64_t i = 0; i < heads * tile.dim; ++i) s.acc[i] = 0;
  return s;
}

// Turns the scores of the kLanes heads from `head` on into weights; `w` is their first.
template <int kLanes>
void Softmax(const LatentState& s, float* w, int64_t head, int keys) {
  const auto before = simd::Load<kLanes>(s.maximum + head);
  auto maximum = before;
  for (int j = 0; j < keys; ++j) maximum = simd::Max(maximum, simd::Load<kLanes>(w + j * kBlock));
  simd::F<kLanes> sum = {};
  for (int j = 0; j < keys; ++j) {
    const auto weight = simd::Exp(simd::Load<kLanes>(w + j * kBlock) - maximum);
    simd::Store<kLanes>(w + j * kBlock, weight);
    sum += weight;
  }
  const auto rescale = simd::Exp(before - maximum);
  simd::Store<kLanes>(s.rescale + head, rescale);
  simd::Store<kLanes>(s.sum + head, simd::Load<kLanes>(s.sum + head) * rescale + sum);
  simd::Store<kLanes>(s.maximum + head, maximum);
}

// Keys scored together and heads mixed together, two vectors of sums each.
constexpr int kTogether = 4;

template <int kLanes>
void AttendBlock(const LatentTile& tile, const LatentState& s, int keys) {
  for (int64_t head = 0; head < tile.heads; head += kPanel<kLanes>) {
    for (int j = 0; j < keys; j += kTogether) {
      const float* four[kTogether];
      for (int i = 0; i < kTogether; ++i) four[i] = s.rows[j + i < keys ? j + i : keys - 1];
      ScorePanel<kLanes, kTogether>(s.q + head * tile.dim, tile.dim, four, s.scores + j * kBlock);
    }
    Softmax<kLanes>(s, s.scores, head, keys);
    Softmax<kLanes>(s, s.scores + kLanes, head + kLanes, keys);
    for (int64_t r = 0; r < kPanel<kLanes> && head + r < tile.heads; r += kTogether) {
      MixRows<kLanes, kTogether, 2, true>(Mix<float>{.w = s.scores + r,
                                                     .v = s.rows,
                                                     .keys = keys,
                                                     .rescale = s.rescale + head + r,
                                                     .acc = s.acc + (head + r) * tile.dim},
                                          tile.dim);
    }
  }
}

// Collects rows until a block is full.
template <int kLanes>
class KeyBlocks final {
 public:
  KeyBlocks(const LatentTile& tile, const LatentState& state) : tile_(tile), state_(state) {}

  // Row `row` of the sequence in the store.
  void Add(const LatentRows& rows, int64_t row) {
    ReadLatentRow<kLanes>(rows, tile_.pages[row / rows.page_rows], row % rows.page_rows, tile_.dim,
                          const_cast<float*>(state_.rows[keys_]));
    if (++keys_ == kBlock) Flush();
  }

  void Flush() {
    if (keys_ > 0) AttendBlock<kLanes>(tile_, state_, keys_);
    keys_ = 0;
  }

 private:
  const LatentTile& tile_;
  const LatentState& state_;
  int keys_ = 0;
};

inline void StoreRow(const float* acc, float sum, int dim, float* out) {
  for (int d = 0; d < dim; ++d) out[d] = acc[d] / sum;
}
inline void StoreRow(const float* acc, float sum, int dim, BFloat16* out) {
  for (int d = 0; d < dim; ++d) out[d] = ToBFloat16(acc[d] / sum);
}

template <int kLanes, typename T>
void Attend(const LatentTile& tile) {
  const LatentState s = Start<kLanes, T>(tile);
  KeyBlocks<kLanes> blocks(tile, s);
  for (int64_t p = tile.first; p <= tile.last; ++p) blocks.Add(tile.window, p);
  const int64_t entries = tile.selected == nullptr ? tile.visible : tile.num_selected;
  for (int64_t i = 0; i < entries; ++i) {
    const int64_t entry = tile.selected == nullptr ? i : tile.selected[i];
    if (entry >= 0 && entry < tile.visible) blocks.Add(tile.compressed, entry);
  }
  blocks.Flush();
  for (int64_t n = 0; n < tile.heads; ++n) {
    StoreRow(s.acc + n * tile.dim, s.sum[n], tile.dim,
             static_cast<T*>(tile.out) + n * tile.out_head_stride);
  }
}

template <int kLanes>
constexpr LatentKernels kKernels = {.attend = {Attend<kLanes, float>, Attend<kLanes, BFloat16>}};
