// Which tiles of y a block of the kernel for many tokens computes, in which order. The kernel asks
// its traits' Work: here the one of a single product; kernels/fp8_grouped_gemm has another.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_WORK_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_WORK_CUH_

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"

namespace millrace::fp8_tiles {

// A block's tile. Rows from row_end on, another group's, are not written. `group`: which matrix of
// w, and of its scales.
struct Tile {
  int row, row_end, col, group;
};

// Which tile a block takes when: bands of kBand rows of tiles, down the rows first, so that the
// tiles in flight at a time share their operands in L2.
struct Order {
  static constexpr int kBand = 16;
  int rows, cols;  // of tiles

  template <typename T>
  __host__ __device__ __forceinline__ static Order Of(int tokens, int outputs) {
    return {(tokens + T::kRows - 1) / T::kRows, (outputs + T::kCols - 1) / T::kCols};
  }
  __host__ __device__ __forceinline__ int tiles() const { return rows * cols; }
  // x: the row, y: the column.
  __device__ __forceinline__ int2 At(int tile) const {
    const int band = tile / (kBand * cols);
    const int height = min(kBand, rows - band * kBand);
    const int rest = tile - band * kBand * cols;
    return {band * kBand + rest % height, rest / height};
  }
};

// The work of one product.
struct Dense {
  static constexpr bool kGroups = false;  // whether row_end can lie inside the product's tokens
  struct Shared {};                       // what it keeps in the block's shared memory
  struct Params {};                       // what the host tells it besides the product

  // One thread, with the kernel's own barriers.
  template <typename T>
  static __device__ __forceinline__ void Init(Shared&) {}
  // A warp that has nothing else to do.
  template <typename T>
  static __device__ __forceinline__ void Schedule(const Fp8GemmKernelArgs&, const Params&,
                                                  Shared&) {}

  // A thread's way through its block's tiles.
  template <typename T>
  class Reader {
   public:
    __device__ __forceinline__ Reader(const Fp8GemmKernelArgs& args, const Params&, Shared&)
        : order_(Order::Of<T>(args.tokens, args.outputs)),
          row_end_(args.tokens),
          in_band_(blockIdx.x) {}

    // The next tile. When there is none, false, and `tile` stays as it is. Without the divisions of
    // Order::At() where a band is whole.
    __device__ __forceinline__ bool Next(Tile& tile) {
      int height = min(Order::kBand, order_.rows - band_);
      while (height > 0 && in_band_ >= static_cast<unsigned>(height * order_.cols)) {
        in_band_ -= height * order_.cols;
        band_ += Order::kBand;
        height = min(Order::kBand, order_.rows - band_);
      }
      if (height <= 0) return false;
      const unsigned col = height == Order::kBand ? in_band_ / Order::kBand : in_band_ / height;
      const int row = band_ + static_cast<int>(in_band_ - col * height);
      tile = {row * T::kRows, row_end_, static_cast<int>(col) * T::kCols, 0};
      in_band_ += gridDim.x;
      return true;
    }

   private:
    Order order_;
    int row_end_;
    int band_ = 0;      // its first row of tiles
    unsigned in_band_;  // the next tile's number among the band's
  };
};

// One product by tiles of two widths, so that a last round that would leave blocks idle is of
// narrower tiles. The first `turn` rows of tiles begin with wide[0] wide tiles, the others with
// wide[1]; narrow ones are what is left of a row, if anything is. Blocks take the wide tiles first,
// which are as many as make whole rounds of them.
struct Mix {
  int32_t turn, wide[2];
};

struct MixedWork : Dense {
  using Params = Mix;

  template <typename T>
  static __device__ __forceinline__ void Schedule(const Fp8GemmKernelArgs&, const Params&,
                                                  Shared&) {}

  template <typename T>
  class Reader {
   public:
    __device__ __forceinline__ Reader(const Fp8GemmKernelArgs& args, const Mix& mix, Shared&)
        : part_(Of(args, 0, mix.turn, mix.wide[0])),
          below_(Of(args, mix.turn, (args.tokens + T::kRows - 1) / T::kRows, mix.wide[1])),
          row_end_(args.tokens),
          in_band_(blockIdx.x) {}

    // The next tile. When there is none, false, and `tile` stays as it is.
    __device__ __forceinline__ bool Next(Tile& tile) {
      int height = min(Order::kBand, part_.end - part_.band);
      while (in_band_ >= static_cast<unsigned>(height * part_.cols)) {
        in_band_ -= height * part_.cols;
        part_.band += height;
        if (part_.band >= part_.end) {
          if (part_.end == below_.end) return false;
          part_ = below_;
        }
        height = min(Order::kBand, part_.end - part_.band);
      }
      const unsigned col = height == Order::kBand ? in_band_ / Order::kBand : in_band_ / height;
      const int row = part_.band + static_cast<int>(in_band_ - col * height);
      tile = {row * T::kRows, row_end_, part_.first_col + static_cast<int>(col) * T::kCols, 0};
      in_band_ += gridDim.x;
      return true;
    }

   private:
    // Rows of tiles up to `end`, that begin alike.
    struct Part {
      int band;  // the present band's first row
      int end, cols, first_col;
    };
    static __device__ __forceinline__ Part Of(const Fp8GemmKernelArgs& args, int begin, int end,
                                              int wide) {
      if constexpr (T::kRest) {
        const int first_col = wide * T::Wider::kCols;
        return {begin, end, (args.outputs - first_col + T::kCols - 1) / T::kCols, first_col};
      }
      return {begin, end, wide, 0};
    }

    Part part_, below_;  // the turn
    int row_end_;
    unsigned in_band_;  // the next tile's number among the band's
  };
};

}  // namespace millrace::fp8_tiles

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_WORK_CUH_
