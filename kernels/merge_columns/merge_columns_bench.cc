// MergeColumns of logits from two and eight ranks.
//
//   bazel run -c opt //kernels/merge_columns:merge_columns_bench
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/merge_columns/merge_columns.h"

namespace millrace {
namespace {

constexpr int64_t kVocab = 128256;

void Bench(BenchBed& bed) {
  for (const int64_t ranks : {2, 8}) {
    const std::vector<int64_t> columns(static_cast<size_t>(ranks), kVocab / ranks);
    for (const int64_t rows : {2, 16, 64}) {
      const BenchOperand parts = bed.Operand(DType::kF32, {rows, kVocab});
      const BenchOperand y = bed.Operand(DType::kF32, {rows, kVocab});
      bed.Row(absl::StrCat(rows, " x ", kVocab, ", ", ranks, " ranks"),
              {.bytes = 8.0 * static_cast<double>(rows * kVocab)}, [&](int64_t i) {
                MR_CHECK(MergeColumns(bed.ctx(),
                                      {.parts = parts.At(i), .columns = columns, .y = y.At(i)})
                             .ok());
              });
    }
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::Bench); }
