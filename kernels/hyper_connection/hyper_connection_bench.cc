// The hyper-connections of four streams around one sublayer, and those of the model's two ends:
// tokens being decoded, and a prefill.
//
//   bazel run -c opt //kernels/hyper_connection:hyper_connection_bench
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/hyper_connection/hyper_connection_cases.h"

namespace millrace {
namespace {

constexpr int64_t kStreams = 4;
constexpr int64_t kRows = (2 + kStreams) * kStreams;

std::string Name(const char* op, const HyperConnectionServed& c) {
  return absl::StrCat(op, " ", c.tokens, " x ", kStreams, " x ", c.width);
}

// Bytes of a [tokens, width] of activations.
double RowBytes(const BenchBed& bed, const HyperConnectionServed& c) {
  return static_cast<double>(c.tokens * c.width * DTypeBytes(bed.activations()));
}

// In, or Head where `rows` is the number of streams.
void BenchMix(BenchBed& bed, const HyperConnectionServed& c, int64_t rows) {
  const bool head = rows == kStreams;
  const BenchOperand streams = bed.Operand(bed.activations(), {c.tokens, kStreams, c.width});
  const BenchOperand x = bed.Operand(bed.activations(), {c.tokens, c.width});
  const BenchOperand fn = bed.Operand(DType::kF32, {rows, kStreams * c.width});
  const BenchOperand base = bed.Operand(DType::kF32, {rows});
  const BenchOperand scale = bed.Operand(DType::kF32, {head ? 1 : 3});
  const BenchOperand post = bed.Operand(DType::kF32, {c.tokens, kStreams});
  const BenchOperand comb = bed.Operand(DType::kF32, {c.tokens, kStreams, kStreams});
  const auto elements = static_cast<double>(kStreams * c.width);
  const BenchWork work = {
      .bytes = (1 + kStreams) * RowBytes(bed, c) + 4 * static_cast<double>(rows) * elements,
      .flops = 2 * static_cast<double>(c.tokens * (rows + 2)) * elements};
  if (head) {
    bed.Row(Name("head", c), work, [&](int64_t i) {
      MR_CHECK(HyperConnectionHead(bed.ctx(), {.streams = streams.At(i),
                                               .fn = fn.At(i),
                                               .base = base.At(0),
                                               .scale = scale.At(0),
                                               .y = x.At(i),
                                               .norm_eps = 1e-6f,
                                               .hc_eps = 1e-6f})
                   .ok());
    });
    return;
  }
  bed.Row(Name("in", c), work, [&](int64_t i) {
    MR_CHECK(HyperConnectionIn(bed.ctx(), {.streams = streams.At(i),
                                           .fn = fn.At(i),
                                           .base = base.At(0),
                                           .scale = scale.At(0),
                                           .x = x.At(i),
                                           .post = post.At(i),
                                           .comb = comb.At(i),
                                           .norm_eps = 1e-6f,
                                           .hc_eps = 1e-6f,
                                           .sinkhorn_iters = 20})
                 .ok());
  });
}

void BenchOut(BenchBed& bed, const HyperConnectionServed& c) {
  const BenchOperand streams = bed.Operand(bed.activations(), {c.tokens, kStreams, c.width});
  const BenchOperand out = bed.Operand(bed.activations(), {c.tokens, c.width});
  const BenchOperand post = bed.Operand(DType::kF32, {c.tokens, kStreams});
  const BenchOperand comb = bed.Operand(DType::kF32, {c.tokens, kStreams, kStreams});
  const double bytes = RowBytes(bed, c);
  bed.Row(Name("out", c),
          {.bytes = (1 + 2 * kStreams) * bytes,
           .flops = 2 * static_cast<double>(c.tokens * c.width * kStreams * (1 + kStreams))},
          [&](int64_t i) {
            MR_CHECK(HyperConnectionOut(bed.ctx(), {.out = out.At(i),
                                                    .post = post.At(i),
                                                    .comb = comb.At(i),
                                                    .streams = streams.At(i)})
                         .ok());
          });
}

void BenchBegin(BenchBed& bed, const HyperConnectionServed& c) {
  const BenchOperand streams = bed.Operand(bed.activations(), {c.tokens, kStreams, c.width});
  const BenchOperand x = bed.Operand(bed.activations(), {c.tokens, c.width});
  bed.Row(Name("begin", c), {.bytes = (1 + kStreams) * RowBytes(bed, c)}, [&](int64_t i) {
    MR_CHECK(HyperConnectionBegin(bed.ctx(), {.x = x.At(i), .streams = streams.At(i)}).ok());
  });
}

void BenchAll(BenchBed& bed) {
  for (const HyperConnectionServed& c : kHyperConnectionServed) {
    if (c.large && !bed.on_cuda()) continue;
    BenchMix(bed, c, kRows);
    BenchOut(bed, c);
    BenchMix(bed, c, kStreams);
    BenchBegin(bed, c);
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
