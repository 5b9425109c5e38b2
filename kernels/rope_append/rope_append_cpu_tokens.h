// The CPU kernel's text, compiled once per instruction set: include it inside an anonymous
// namespace of millrace, after tokens.h, rotation_cpu.h and copy_row_cpu.h. No include guard, and
// no includes, on purpose.

template <typename T>
T* HeadOf(const TokenHeads& heads, int64_t t, int64_t h) {
  return static_cast<T*>(heads.data) + t * heads.token_stride + h * heads.head_stride;
}

template <typename T>
T* RowOf(const CachePages& pages, int64_t page, int64_t h, int64_t offset) {
  return static_cast<T*>(pages.data) + page * pages.page_stride + h * pages.head_stride +
         offset * pages.slot_stride;
}

// A key on its way into the cache.
template <int kLanes, typename From, typename To>
void RotateRow(const From* key, To* to, int dim, const RopeTable<kLanes>& table, float inverse) {
  if constexpr (sizeof(To) == 1) {
    alignas(64) float rotated[kMaxRopeDim];
    RotateHead<kLanes>(key, rotated, dim / 2, table);
    EncodeRow<kLanes>(rotated, to, dim, inverse);
  } else {
    RotateHead<kLanes>(key, to, dim / 2, table);
  }
}

template <int kLanes, typename From, typename To>
void RotateAndAppend(const RopeAppendTokens& args, int64_t begin, int64_t end) {
  const int half = args.dim / 2;
  RopeTable<kLanes> table(args.inv_freq, half);
  for (int64_t t = begin; t < end; ++t) {
    table.Fill(args.positions[t], half);
    for (int32_t h = 0; h < args.q_heads; ++h) {
      From* head = HeadOf<From>(args.q, t, h);
      RotateHead<kLanes>(head, head, half, table);
    }
    if (args.slots[t] < 0) continue;
    const int64_t page = args.slots[t] / args.page_tokens;
    const int64_t offset = args.slots[t] % args.page_tokens;
    for (int32_t h = 0; h < args.kv_heads; ++h) {
      const From* key = HeadOf<const From>(args.k, t, h);
      RotateRow<kLanes>(key, RowOf<To>(args.k_cache, page, h, offset), args.dim, table,
                        InverseScale<To>(args.k_cache.scale, h));
      const From* value = HeadOf<const From>(args.v, t, h);
      AppendRow<kLanes>(value, RowOf<To>(args.v_cache, page, h, offset), args.dim,
                        InverseScale<To>(args.v_cache.scale, h));
    }
  }
}
