// Shapes of the test and the benchmark.
#ifndef KERNELS_KV_COMPRESS_KV_COMPRESS_CASES_H_
#define KERNELS_KV_COMPRESS_KV_COMPRESS_CASES_H_

#include <cstdint>

#include "kernels/core/dtype.h"

namespace millrace {

struct KvCompressCase {
  int64_t ratio, dim, pairs;
  int64_t page_tokens;
  int64_t carry_blocks = 0;  // of a page; 0: windows do not overlap
  DType store = DType::kF32;
  DType weight = DType::kF32;
  int64_t padding = 1;  // elements after each row of projections, some times over
};

inline constexpr KvCompressCase kKvCompressCases[] = {
    {4, 512, 32, 128, 1},                               // ratio-4 rows of Flash
    {4, 128, 32, 128, 1, DType::kBF16},                 // their index keys
    {128, 512, 32, 128, 0, DType::kF32, DType::kBF16},  // ratio-128 rows
    {4, 64, 8, 256, 2, DType::kBF16, DType::kBF16},     // the tiny model, larger pages
    {128, 64, 8, 384, 0},
    {4, 32, 8, 8, 1},   // two windows a block
    {4, 4, 2, 16, 4},   // each window the first of its block
    {3, 20, 5, 18, 2},  // sizes of no model
    {5, 12, 0, 10, 0},
    {1, 8, 1, 4, 0},  // a row for each token
    // The same on rows that 16-byte loads can read.
    {4, 512, 32, 128, 1, DType::kF32, DType::kF32, 4},
    {4, 128, 32, 128, 1, DType::kBF16, DType::kF32, 4},
    {128, 512, 32, 128, 0, DType::kF32, DType::kBF16, 4},
    {128, 128, 32, 128, 0, DType::kBF16, DType::kBF16, 4},
    {33, 192, 3, 66, 1, DType::kF32, DType::kF32, 4},
    {6, 1024, 32, 24, 1, DType::kF32, DType::kF32, 4},
    {4, 32, 8, 8, 1, DType::kF32, DType::kF32, 4},
    {3, 20, 5, 18, 2, DType::kF32, DType::kF32, 4},
};

// FP8 rows, of Flash's shape.
inline constexpr KvCompressCase kKvCompressFp8Cases[] = {
    {4, 512, 32, 128, 1, DType::kU8},
    {128, 512, 32, 256, 0, DType::kU8},
    {4, 512, 32, 128, 1, DType::kU8, DType::kBF16, 4},
    {128, 512, 32, 256, 0, DType::kU8, DType::kBF16, 4},
};

inline constexpr KvCompressCase kKvCompressHadamardCases[] = {
    {4, 128, 32, 64, 1},  // index keys
    {4, 128, 32, 64, 1, DType::kBF16, DType::kBF16, 4},
    {4, 32, 8, 16, 2, DType::kBF16},
    {3, 1024, 4, 6, 1, DType::kBF16, DType::kF32, 4},
    {128, 64, 8, 128, 0, DType::kF32, DType::kF32, 4},
};

// DeepSeek-V4's compressors: what each of `sequences` brings after `before` tokens.
struct KvCompressServed {
  const char* name;
  int64_t ratio, dim;
  int64_t sequences, before, tokens;
  DType store = DType::kU8;
};

inline constexpr KvCompressServed kKvCompressServed[] = {
    {"ratio4_1_no_entry", 4, 512, 1, 1024, 1},
    {"ratio4_1", 4, 512, 1, 1027, 1},
    {"ratio4_64", 4, 512, 64, 1027, 1},
    {"ratio4_512", 4, 512, 1, 0, 512},
    {"index_1", 4, 128, 1, 1027, 1, DType::kBF16},
    {"index_64", 4, 128, 64, 1027, 1, DType::kBF16},
    {"index_512", 4, 128, 1, 0, 512, DType::kBF16},
    {"ratio128_1_no_entry", 128, 512, 1, 1024, 1},
    {"ratio128_1", 128, 512, 1, 1151, 1},
    {"ratio128_64", 128, 512, 64, 1151, 1},
    {"ratio128_512", 128, 512, 1, 0, 512},
};

inline constexpr KvCompressServed kKvCompressServedOnGpu[] = {
    {"ratio4_2048", 4, 512, 1, 0, 2048},
    {"ratio4_8192", 4, 512, 1, 0, 8192},
    {"ratio4_4x2048", 4, 512, 4, 0, 2048},
    {"index_2048", 4, 128, 1, 0, 2048, DType::kBF16},
    {"index_8192", 4, 128, 1, 0, 8192, DType::kBF16},
    {"ratio128_2048", 128, 512, 1, 0, 2048},
    {"ratio128_8192", 128, 512, 1, 0, 8192},
    {"ratio128_4x2048", 128, 512, 4, 0, 2048},
};

}  // namespace millrace

#endif  // KERNELS_KV_COMPRESS_KV_COMPRESS_CASES_H_
