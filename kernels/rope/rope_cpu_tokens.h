// The CPU kernel's text, compiled once per instruction set: include it inside an anonymous
// namespace of millrace, after rotation_cpu.h. No include guard, and no includes, on purpose.

template <int kLanes, typename T>
void RotateTokens(const RopeTokens& args) {
  const int half = args.dim / 2;
  RopeTable<kLanes> table(args.inv_freq, half);
  for (int64_t t = 0; t < args.tokens; ++t) {
    table.Fill(args.positions[t], half);
    T* x = static_cast<T*>(args.x) + t * args.token_stride;
    for (int h = 0; h < args.heads; ++h) {
      T* head = x + h * args.head_stride;
      RotateHead<kLanes>(head, head, half, table);
    }
  }
}
