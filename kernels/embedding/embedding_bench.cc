// Embedding: bf16 rows of a model's table, scattered, for tokens being decoded and a prefill.
//
//   bazel run -c opt //kernels/embedding:embedding_bench
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/embedding/embedding.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 128256;
constexpr int64_t kWidth = 4096;
constexpr int64_t kIds = 1 << 20;  // more than one graph of calls uses

void Bench(BenchBed& bed) {
  const DType dtype = bed.activations();
  std::vector<int64_t> scattered(kIds);
  for (int64_t i = 0; i < kIds; ++i) scattered[static_cast<size_t>(i)] = i * 40503 % kRows;
  const BenchOperand table = bed.Operand(DType::kBF16, {kRows, kWidth});
  const BenchOperand ids = bed.Integers(DType::kI32, scattered);
  for (int64_t tokens : {1, 16, 64, 512, 8192}) {
    const BenchOperand y = bed.Operand(dtype, {tokens, kWidth});
    const auto width = static_cast<double>(2 + DTypeBytes(dtype));
    bed.Row(absl::StrCat(tokens, " x ", kWidth),
            {.bytes = width * static_cast<double>(tokens * kWidth)}, [&](int64_t i) {
              const int64_t begin = i * tokens % (kIds - tokens);
              MR_CHECK(Embedding(bed.ctx(), {.ids = ids.At(0).Rows(begin, begin + tokens),
                                             .table = table.At(0),
                                             .y = y.At(i)})
                           .ok());
            });
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::Bench); }
