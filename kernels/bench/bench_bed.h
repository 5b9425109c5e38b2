// What a benchmark program runs on: the GPU where there is one, else the CPU, and its table.
//
//   void Bench(BenchBed& bed) {
//     const BenchOperand x = bed.Operand(DType::kBF16, {tokens, size});
//     bed.Row("decode", {.bytes = ...}, [&](int64_t i) {
//       MR_CHECK(Op(bed.ctx(), {.x = x.At(i)}).ok());
//     });
//   }
//   int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::Bench); }
#ifndef KERNELS_BENCH_BENCH_BED_H_
#define KERNELS_BENCH_BENCH_BED_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/bench/bench.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/core/op_context.h"

namespace millrace {

// Copies of one tensor, filled with noise. On a GPU so many that a call finds none of its operands
// in the L2, on the CPU one.
class BenchOperand final {
 public:
  BenchOperand(Buffer buffer, const TensorView& first, int64_t copies)
      : buffer_(std::move(buffer)), first_(first), copies_(copies) {}

  // The tensor of call i.
  TensorView At(int64_t i) const;

 private:
  Buffer buffer_;
  TensorView first_;
  int64_t copies_;
};

// One thread. Aborts on errors: a benchmark has no use for going on.
class BenchBed final {
 public:
  // The CPU with `threads` threads.
  static absl::StatusOr<std::unique_ptr<BenchBed>> OnCpu(int threads);
  // The first GPU.
  static absl::StatusOr<std::unique_ptr<BenchBed>> OnCuda();

  bool on_cuda() const { return cuda_ != nullptr; }
  Device& device() { return *device_; }
  OpContext ctx() { return {*device_, stream_, workspace_}; }  // with a workspace of 256 MiB
  // The dtype of activations on this device: bf16 on a GPU, f32 on the CPU.
  DType activations() const { return on_cuda() ? DType::kBF16 : DType::kF32; }

  // f32, bf16 (both uniform in [-1, 1)) or u8 (any bits).
  BenchOperand Operand(DType dtype, std::initializer_list<int64_t> shape);
  // A tensor with these values, the same for every call.
  BenchOperand Integers(DType dtype, const std::vector<int64_t>& values);  // i32 or i64
  BenchOperand Floats(const std::vector<float>& values);

  // How long run(i), i = 0, 1, ..., takes, which runs one op on ctx() with the operands At(i).
  BenchTime Measure(absl::FunctionRef<void(int64_t)> run);
  // Measures and prints a row; returns what it measured.
  BenchTime Row(const std::string& name, const BenchWork& work,
                absl::FunctionRef<void(int64_t)> run);
  void Note(const std::string& text) { table_->Note(text); }

 private:
  BenchBed() = default;
  void Finish();  // workspace and table heading

  Buffer Take(int64_t bytes);
  BenchOperand Upload(const void* data, DType dtype, int64_t size);

  std::unique_ptr<Device> device_;
  std::unique_ptr<CudaBench> cuda_;  // null on the CPU
  Stream stream_;
  Buffer workspace_buffer_;
  Workspace workspace_;
  std::optional<BenchTable> table_;
};

// main() of a benchmark: [--device=cpu|cuda] [--threads=N], by default the GPU where there is one
// and as many threads as the machine has. Returns the exit code.
int BenchMain(int argc, char** argv, absl::FunctionRef<void(BenchBed&)> bench);

}  // namespace millrace

#endif  // KERNELS_BENCH_BENCH_BED_H_
