// A cache of E4M3 codes on its way to prefill for Hopper: the producer warp has blocks of codes
// copied into shared memory, and three warps widen them to f16 into the ring that the consumers
// read, in the layout that the copy engine's swizzle gives.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CODES_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CODES_CUH_

#include "kernels/paged_attention/paged_attention_kernel_prefill_load.cuh"
#include "kernels/ptx/e4m3.cuh"

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

// Three warps. Sixteen codes of a row a lane and step: the lanes read without bank conflicts, and
// write without, since those of odd slabs begin with their second half.
template <typename T>
struct Widener {
  typename T::Smem& smem;
  Cursor<T::kCodeStages> codes;
  Cursor<T::kStages> ring;

  // What lies past the sequence's end may be NaN, which a weight of 0 does not hide.
  __device__ __forceinline__ void WidenBlock(const uint8_t* from, int rows, uint8_t* to) const {
    constexpr int kVectors = T::kHeadDim / 16;  // of a row
    constexpr int kThreads = 32 * T::kWideners;
#pragma unroll 2
    for (int i = threadIdx.x - 32; i < T::kKeys * kVectors; i += kThreads) {
      const int row = i / kVectors, vector = i % kVectors;
      uint4 x = *reinterpret_cast<const uint4*>(from + i * 16);
      if (row >= rows) x = {};
      const uint4 low = {WidenE4M3Pair(x.x), WidenE4M3Pair(x.x >> 16), WidenE4M3Pair(x.y),
                         WidenE4M3Pair(x.y >> 16)};
      const uint4 high = {WidenE4M3Pair(x.z), WidenE4M3Pair(x.z >> 16), WidenE4M3Pair(x.w),
                          WidenE4M3Pair(x.w >> 16)};
      uint8_t* const slab_row = to + vector / 4 * T::kSlabBytes + row * T::kSlabRowBytes;
      const int chunk = vector % 4 * 2, swap = vector / 4 % 2;
      *reinterpret_cast<uint4*>(slab_row + ((chunk + swap) ^ row % 8) * 16) = swap ? high : low;
      *reinterpret_cast<uint4*>(slab_row + ((chunk + 1 - swap) ^ row % 8) * 16) = swap ? low : high;
    }
  }

  __device__ void Run() {
    for (;;) {
      Wait(&smem.codes_full[codes.index], codes.parity);
      const int rows = smem.rows[codes.index];
      if (rows < 0) return;
      Wait(&smem.empty[ring.index], ring.parity ^ 1);
      WidenBlock(smem.codes[codes.index], rows, smem.ring[ring.index]);
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
};

}  // namespace millrace::prefill

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CODES_CUH_
