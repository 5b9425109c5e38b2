// A cache of E4M3 codes on its way to prefill for Hopper: the producer warp has blocks of codes
// copied into shared memory, and three warps widen them to f16 into the ring that the consumers
// read, in the layout that the copy engine's swizzle gives.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CODES_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CODES_CUH_

#include "kernels/paged_attention/paged_attention_kernel_prefill_load.cuh"
#include "kernels/ptx/fp8.cuh"

namespace millrace::prefill {

// One box of a block of codes, a lane: the rows of a page, whole.
template <typename T>
struct CodeBox {
  int page_shift, page_mask;  // of a key: its page, and its row there
  int row;                    // of the box within the block
  bool active;

  __device__ explicit CodeBox(int page_tokens) {
    page_shift = __ffs(page_tokens) - 1;
    page_mask = page_tokens - 1;
    row = threadIdx.x % 32 * min(page_tokens, T::kMaxBoxRows);
    active = row < T::kKeys;
  }

  // As Box::Page().
  __device__ int Page(const Fetch& f, int j) const {
    const int key = j * T::kKeys + row;
    return active && j >= 0 && key < f.kv_len ? f.pages[key >> page_shift] : -1;
  }

  __device__ void Load(uint8_t* block, const CUtensorMap& map, uint64_t* barrier, int j, int page,
                       int kv_head) const {
    if (!active) return;
    const int key = j * T::kKeys + row;
    LoadBox4(block + row * T::kHeadDim, map, barrier, make_int4(0, key & page_mask, kv_head, page));
  }
};

template <typename T>
struct CodeProducer {
  const PagedPrefillArgs& args;
  const Maps& maps;
  typename T::Smem& smem;
  const CodeBox<T> box;
  Cursor<T::kCodeStages> codes;
  Cursor<T::kQBuffers> queries;

  __device__ void LoadBlock(const CUtensorMap& map, const Fetch& f, int j, int page) {
    uint64_t* full = &smem.codes_full[codes.index];
    Wait(&smem.codes_empty[codes.index], codes.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      smem.rows[codes.index] = f.kv_len - j * T::kKeys;
      ArriveExpect(full, T::kCodeBytes);
    }
    __syncwarp();
    box.Load(smem.codes[codes.index], map, full, j, page, f.tile.kv_head);
    codes.Advance();
  }

  // In the order of Producer::Run(), and then the word that nothing follows.
  __device__ void Run() {
    Fetch f = NextTile<T>(args);
    while (f.tile.blocks > 0) {
      HandOver<T>(args, maps, smem, f.tile, queries);
      int page = box.Page(f, f.tile.blocks - 1);
      const Fetch next = NextTile<T>(args);
      int page_ahead = -1;
      for (int j = f.tile.blocks - 1; j >= 0; --j) {
        const int page_next = box.Page(f, j - 1);
        LoadBlock(maps.k, f, j, page);
        if (j < f.tile.blocks - 1) LoadBlock(maps.v, f, j + 1, page_ahead);
        page_ahead = page;
        page = page_next;
      }
      LoadBlock(maps.v, f, 0, page_ahead);
      f = next;
    }
    HandOver<T>(args, maps, smem, f.tile, queries);
    Wait(&smem.codes_empty[codes.index], codes.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      smem.rows[codes.index] = -1;
      Arrive(&smem.codes_full[codes.index]);
    }
  }
};

// Three warps. Eight codes of a row a lane and step, which become 16 bytes: reads and writes meet
// every bank once.
template <typename T>
struct Widener {
  typename T::Smem& smem;
  Cursor<T::kCodeStages> codes;
  Cursor<T::kStages> ring;

  static constexpr int kVectors = T::kHeadDim / 8;            // of a row
  static constexpr int kStep = 32 * T::kWideners / kVectors;  // rows from a lane's to its next
  static constexpr int kInFlight = 4;
  static_assert(32 * T::kWideners % kVectors == 0);

  // kInFlight rows from `begin` on, as far as they are of the block; with kEnds zeros from `end`
  // on: what lies past the sequence's end may be NaN, which a weight of 0 does not hide. Addresses
  // of shared memory.
  template <bool kLast, bool kEnds>
  __device__ __forceinline__ void WidenRows(uint32_t from, uint32_t to, int begin, int end) const {
    uint2 x[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int row = begin + i * kStep;
      x[i] = {};
      if (row < (kEnds ? end : kLast ? T::kKeys : row + 1)) {
        x[i] = LoadShared(from + row * T::kHeadDim);
      }
    }
    const uint32_t vector = (threadIdx.x - 32) % kVectors;
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int row = begin + i * kStep;
      const uint4 halves = {WidenE4M3Pair(x[i].x), WidenE4M3Pair(x[i].x >> 16),
                            WidenE4M3Pair(x[i].y), WidenE4M3Pair(x[i].y >> 16)};
      const uint32_t chunk = (vector ^ row) & 7;
      if (kLast && row >= T::kKeys) break;
      StoreShared(to + row * T::kSlabRowBytes + chunk * 16, halves);
    }
  }

  template <bool kEnds>
  __device__ __forceinline__ void WidenBlock(uint32_t from, uint32_t to, int end) const {
    constexpr int kAtOnce = kInFlight * kStep, kWhole = T::kKeys / kAtOnce * kAtOnce;
    const uint32_t thread = threadIdx.x - 32, vector = thread % kVectors;
    const int first = static_cast<int>(thread / kVectors);
    from += vector * 8;
    to += vector / 8 * T::kSlabBytes;
#pragma unroll
    for (int begin = 0; begin < kWhole; begin += kAtOnce) {
      WidenRows<false, kEnds>(from, to, begin + first, end);
    }
    if constexpr (kWhole < T::kKeys) WidenRows<true, kEnds>(from, to, kWhole + first, end);
  }

  __device__ void Run() {
    for (;;) {
      Wait(&smem.codes_full[codes.index], codes.parity);
      // By the lane that arrives at codes_empty: racecheck does not follow __syncwarp to it.
      const int rows = __shfl_sync(~0u, threadIdx.x % 32 == 0 ? smem.rows[codes.index] : 0, 0);
      if (rows < 0) return;
      Wait(&smem.empty[ring.index], ring.parity ^ 1);
      const uint32_t from = SharedAddress(smem.codes[codes.index]);
      const uint32_t to = SharedAddress(smem.ring[ring.index]);
      if (rows >= T::kKeys) {
        WidenBlock<false>(from, to, rows);
      } else {
        WidenBlock<true>(from, to, rows);
      }
      FenceSharedForAsync();
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        Arrive(&smem.full[ring.index]);
        Arrive(&smem.codes_empty[codes.index]);
      }
      codes.Advance();
      ring.Advance();
    }
  }

 private:
  static __device__ __forceinline__ uint2 LoadShared(uint32_t from) {
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(from) : "memory");
    return x;
  }
  static __device__ __forceinline__ void StoreShared(uint32_t to, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z),
                 "r"(x.w)
                 : "memory");
  }
};

}  // namespace millrace::prefill

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CODES_CUH_
