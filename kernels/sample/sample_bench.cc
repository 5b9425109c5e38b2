// Sample against one read of the logits.
//
//   bazel run -c opt //kernels/sample:sample_bench
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/sample_cases.h"

namespace millrace {
namespace {

void Copy(Device& device, void* to, const void* from, int64_t bytes) {
  MR_CHECK(device.Copy(to, from, bytes, CopyKind::kHostToDevice, Stream{}).ok());
  MR_CHECK(device.Synchronize(Stream{}).ok());
}

// Normal logits: a few likely tokens, as a model's.
BenchOperand Logits(BenchBed& bed, const SampleCase& c) {
  BenchOperand logits = bed.Operand(DType::kF32, {c.rows, c.vocabulary});
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> row(static_cast<size_t>(c.vocabulary));
  for (float& x : row) x = normal(generator);
  for (int64_t i = 0; i == 0 || logits.At(i).data != logits.At(0).data; ++i) {
    for (int64_t r = 0; r < c.rows; ++r) {
      std::swap(row[static_cast<size_t>(r)], row[static_cast<size_t>(i + r + 1) % row.size()]);
      Copy(bed.device(), logits.At(i).Rows(r, r + 1).data, row.data(), c.vocabulary * 4);
    }
  }
  return logits;
}

void Bench(BenchBed& bed, const SampleCase& c) {
  const DeviceType type = bed.device().type();
  const BenchOperand logits = Logits(bed, c);
  const auto take = [&bed](int64_t bytes) {
    auto buffer = bed.device().Allocate(bytes);
    MR_CHECK(buffer.ok());
    return std::move(buffer).value();
  };
  const Buffer out = take(c.rows * 4 * (3 + 2 * kSampleTopLogprobs));
  const auto place = [&](int64_t column, DType dtype) {
    return TensorView::Of(static_cast<char*>(out.data()) + column * c.rows * 4, dtype, {c.rows},
                          type);
  };
  const auto place_top = [&](int64_t column, DType dtype) {
    return TensorView::Of(static_cast<char*>(out.data()) + column * c.rows * 4, dtype,
                          {c.rows, kSampleTopLogprobs}, type);
  };
  std::vector<SampleRow> rows(static_cast<size_t>(c.rows), c.Row());
  for (size_t i = 0; i < rows.size(); ++i) rows[i].position = static_cast<int64_t>(i);
  const int64_t row_bytes = c.rows * static_cast<int64_t>(sizeof(SampleRow));
  const Buffer device_rows = take(row_bytes);
  Copy(bed.device(), device_rows.data(), rows.data(), row_bytes);
  SampleArgs args = {.rows = static_cast<const SampleRow*>(device_rows.data()),
                     .ids = place(0, DType::kI32),
                     .flags = place(1, DType::kI32),
                     .logprob = place(2, DType::kF32),
                     .top_ids = place_top(3, DType::kI32),
                     .top_logprobs = place_top(3 + kSampleTopLogprobs, DType::kF32)};
  bed.Row(c.name, {.bytes = static_cast<double>(c.rows * c.vocabulary * 4)}, [&](int64_t i) {
    args.logits = logits.At(i);
    MR_CHECK(Sample(bed.ctx(), args).ok());
  });
}

void BenchAll(BenchBed& bed) {
  for (const SampleCase& c : kSampleServed) {
    if (c.rows <= 16 || bed.on_cuda()) Bench(bed, c);
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
