#include "kernels/hyper_connection/hyper_connection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/hyper_connection/hyper_connection_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Tolerance kMixTolerance = {2e-6, 2e-5};  // f32 sums over a token's streams

// One rounding to bf16 is 2^-9 relative.
Tolerance ToleranceOf(DType dtype) {
  return dtype == DType::kBF16 ? Tolerance{2e-5, 1.0 / 256} : Tolerance{2e-5, 2e-5};
}

struct Parameters {
  float norm_eps = 1e-6f;
  float hc_eps = 1e-6f;
  int32_t iterations = 20;
};

// --- The formulas, in double. ---

struct Weights {
  Values fn, base, scale;
};

struct Mixed {
  Values x, post, comb;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// `z`: one token's streams, flattened.
Values Mixes(const Values& z, const Values& fn, double norm_eps) {
  double squares = 0;
  for (double value : z) squares += value * value;
  const double norm = 1 / std::sqrt(squares / static_cast<double>(z.size()) + norm_eps);
  Values m(fn.size() / z.size());
  for (size_t row = 0; row < m.size(); ++row) {
    for (size_t i = 0; i < z.size(); ++i) m[row] += fn[row * z.size() + i] * z[i];
    m[row] *= norm;
  }
  return m;
}

Values WeightedSum(const Values& z, const Values& weights) {
  const size_t width = z.size() / weights.size();
  Values sum(width);
  for (size_t j = 0; j < weights.size(); ++j) {
    for (size_t i = 0; i < width; ++i) sum[i] += weights[j] * z[j * width + i];
  }
  return sum;
}

void DivideColumns(Values& c, size_t size, double eps) {
  for (size_t k = 0; k < size; ++k) {
    double sum = eps;
    for (size_t j = 0; j < size; ++j) sum += c[j * size + k];
    for (size_t j = 0; j < size; ++j) c[j * size + k] /= sum;
  }
}

void DivideRows(Values& c, size_t size, double eps) {
  for (size_t j = 0; j < size; ++j) {
    double sum = eps;
    for (size_t k = 0; k < size; ++k) sum += c[j * size + k];
    for (size_t k = 0; k < size; ++k) c[j * size + k] /= sum;
  }
}

Values Comb(const Values& logits, size_t size, const Parameters& p) {
  Values c(size * size);
  for (size_t j = 0; j < size; ++j) {
    double sum = 0;
    for (size_t k = 0; k < size; ++k) sum += std::exp(logits[j * size + k]);
    for (size_t k = 0; k < size; ++k) {
      c[j * size + k] = std::exp(logits[j * size + k]) / sum + p.hc_eps;
    }
  }
  DivideColumns(c, size, p.hc_eps);
  for (int32_t i = 1; i < p.iterations; ++i) {
    DivideRows(c, size, p.hc_eps);
    DivideColumns(c, size, p.hc_eps);
  }
  return c;
}

Mixed ExpectedIn(const Values& z, size_t streams, const Weights& w, const Parameters& p) {
  const Values m = Mixes(z, w.fn, p.norm_eps);
  Values pre(streams), logits(streams * streams);
  Mixed mixed;
  for (size_t j = 0; j < streams; ++j) {
    pre[j] = Sigmoid(m[j] * w.scale[0] + w.base[j]) + p.hc_eps;
    mixed.post.push_back(2 * Sigmoid(m[streams + j] * w.scale[1] + w.base[streams + j]));
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = m[2 * streams + i] * w.scale[2] + w.base[2 * streams + i];
  }
  mixed.x = WeightedSum(z, pre);
  mixed.comb = Comb(logits, streams, p);
  return mixed;
}

Values ExpectedHead(const Values& z, size_t streams, const Weights& w, const Parameters& p) {
  Values m = Mixes(z, w.fn, p.norm_eps);
  for (size_t j = 0; j < streams; ++j) m[j] = Sigmoid(m[j] * w.scale[0] + w.base[j]) + p.hc_eps;
  return WeightedSum(z, m);
}

Values Slice(const Values& values, int64_t token, int64_t size) {
  return Values(values.begin() + token * size, values.begin() + (token + 1) * size);
}

void Append(Values& all, const Values& part) { all.insert(all.end(), part.begin(), part.end()); }

bool AllIntact(const std::vector<const GuardedTensor*>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const GuardedTensor* t) { return bool{t->GuardsIntact()}; });
}

// --- Operands of one call. ---

struct InTensors {
  InTensors(Device& device, const HyperConnectionCase& c, DType dtype)
      : streams(device, dtype, {c.tokens, c.streams, c.width}, c.row_padding),
        fn(device, DType::kF32, {(2 + c.streams) * c.streams, c.streams * c.width}, c.row_padding),
        base(device, DType::kF32, {(2 + c.streams) * c.streams}),
        scale(device, DType::kF32, {3}),
        x(device, dtype, {c.tokens, c.width}, c.row_padding),
        post(device, DType::kF32, {c.tokens, c.streams}, c.row_padding),
        comb(device, DType::kF32, {c.tokens, c.streams, c.streams}, c.row_padding) {
    TestRng rng(static_cast<uint64_t>(c.tokens * 7919 + c.width));
    streams.SetNormal(rng);
    const double bound = std::sqrt(3.0 / static_cast<double>(c.streams * c.width));
    fn.SetUniform(rng, -bound, bound);  // so that mixes have a spread of one
    base.SetNormal(rng);
    scale.Set({0.7, -1.3, 1.9});
  }

  HyperConnectionInArgs Args(const Parameters& p) const {
    return {.streams = streams.view(),
            .fn = fn.view(),
            .base = base.view(),
            .scale = scale.view(),
            .x = x.view(),
            .post = post.view(),
            .comb = comb.view(),
            .norm_eps = p.norm_eps,
            .hc_eps = p.hc_eps,
            .sinkhorn_iters = p.iterations};
  }

  Weights weights() const { return {fn.Get(), base.Get(), scale.Get()}; }

  bool GuardsIntact() const { return AllIntact({&streams, &fn, &base, &scale, &x, &post, &comb}); }

  GuardedTensor streams, fn, base, scale, x, post, comb;
};

class HyperConnectionTest : public OpTest {
 protected:
  void CheckIn(const HyperConnectionCase& c, DType dtype, const Parameters& p) {
    SCOPED_TRACE(testing::Message()
                 << c.tokens << "x" << c.streams << "x" << c.width << " " << DTypeName(dtype)
                 << " eps " << p.norm_eps << " " << p.hc_eps << " iterations " << p.iterations);
    InTensors t(device(), c, dtype);
    const Values before = t.streams.Get();
    ASSERT_TRUE(HyperConnectionIn(ctx(), t.Args(p)).ok());
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
    const Weights w = t.weights();
    Mixed want;
    for (int64_t token = 0; token < c.tokens; ++token) {
      const Mixed one = ExpectedIn(Slice(before, token, c.streams * c.width),
                                   static_cast<size_t>(c.streams), w, p);
      Append(want.x, one.x);
      Append(want.post, one.post);
      Append(want.comb, one.comb);
    }
    EXPECT_TRUE(AllClose(t.x.Get(), want.x, ToleranceOf(dtype)));
    EXPECT_TRUE(AllClose(t.post.Get(), want.post, kMixTolerance));
    EXPECT_TRUE(AllClose(t.comb.Get(), want.comb, kMixTolerance));
    EXPECT_EQ(t.streams.Get(), before);
    EXPECT_TRUE(t.GuardsIntact());
  }

  void CheckOut(const HyperConnectionCase& c, DType dtype) {
    SCOPED_TRACE(testing::Message()
                 << c.tokens << "x" << c.streams << "x" << c.width << " " << DTypeName(dtype));
    TestRng rng(static_cast<uint64_t>(c.tokens * 31 + c.width));
    GuardedTensor streams(device(), dtype, {c.tokens, c.streams, c.width}, c.row_padding);
    GuardedTensor out(device(), dtype, {c.tokens, c.width}, c.row_padding);
    GuardedTensor post(device(), DType::kF32, {c.tokens, c.streams}, c.row_padding);
    GuardedTensor comb(device(), DType::kF32, {c.tokens, c.streams, c.streams}, c.row_padding);
    streams.SetNormal(rng);
    out.SetNormal(rng);
    post.SetUniform(rng, 0, 2);
    comb.SetUniform(rng, 0, 1);
    const Values z = streams.Get(), o = out.Get(), p = post.Get(), m = comb.Get();
    ASSERT_TRUE(HyperConnectionOut(ctx(), {.out = out.view(),
                                           .post = post.view(),
                                           .comb = comb.view(),
                                           .streams = streams.view()})
                    .ok());
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
    Values want;
    for (int64_t t = 0; t < c.tokens; ++t) {
      for (int64_t k = 0; k < c.streams; ++k) {
        for (int64_t i = 0; i < c.width; ++i) {
          double sum = p[t * c.streams + k] * o[t * c.width + i];
          for (int64_t j = 0; j < c.streams; ++j) {
            sum += m[(t * c.streams + j) * c.streams + k] * z[(t * c.streams + j) * c.width + i];
          }
          want.push_back(sum);
        }
      }
    }
    EXPECT_TRUE(AllClose(streams.Get(), want, ToleranceOf(dtype)));
    EXPECT_TRUE(AllIntact({&streams, &out, &post, &comb}));
  }

  void CheckHead(const HyperConnectionCase& c, DType dtype, const Parameters& p) {
    SCOPED_TRACE(testing::Message()
                 << c.tokens << "x" << c.streams << "x" << c.width << " " << DTypeName(dtype));
    InTensors t(device(), c, dtype);
    GuardedTensor fn(device(), DType::kF32, {c.streams, c.streams * c.width});
    GuardedTensor base(device(), DType::kF32, {c.streams});
    GuardedTensor scale(device(), DType::kF32, {1});
    TestRng rng(5);
    fn.SetNormal(rng, 1 / std::sqrt(static_cast<double>(c.streams * c.width)));
    base.SetNormal(rng);
    scale.SetAll(-1.7);
    ASSERT_TRUE(HyperConnectionHead(ctx(), {.streams = t.streams.view(),
                                            .fn = fn.view(),
                                            .base = base.view(),
                                            .scale = scale.view(),
                                            .y = t.x.view(),
                                            .norm_eps = p.norm_eps,
                                            .hc_eps = p.hc_eps})
                    .ok());
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
    const Values z = t.streams.Get();
    const Weights w = {fn.Get(), base.Get(), scale.Get()};
    Values want;
    for (int64_t token = 0; token < c.tokens; ++token) {
      Append(want, ExpectedHead(Slice(z, token, c.streams * c.width),
                                static_cast<size_t>(c.streams), w, p));
    }
    EXPECT_TRUE(AllClose(t.x.Get(), want, ToleranceOf(dtype)));
    EXPECT_TRUE(t.GuardsIntact() && AllIntact({&fn, &base, &scale}));
  }
};

TEST_P(HyperConnectionTest, MatchesTheFormulas) {
  for (const HyperConnectionCase& c : kHyperConnectionCases) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      CheckIn(c, dtype, {});
      CheckOut(c, dtype);
      CheckHead(c, dtype, {});
    }
  }
}

TEST_P(HyperConnectionTest, WidestModel) {
  CheckIn(kHyperConnectionWidest, DType::kBF16, {});
  CheckOut(kHyperConnectionWidest, DType::kBF16);
}

TEST_P(HyperConnectionTest, MoreTokensThanAPass) {
  CheckIn(kHyperConnectionLongest, DType::kBF16, {.iterations = 3});
  CheckHead(kHyperConnectionLongest, DType::kBF16, {});
}

// The test's numbers differ by far more than its tolerances from one parameter to the next.
TEST_P(HyperConnectionTest, EachParameterMatters) {
  const HyperConnectionCase c = {3, 4, 20, 0};
  for (const Parameters& p :
       {Parameters{.norm_eps = 3}, Parameters{.hc_eps = 0.3f}, Parameters{.hc_eps = 0},
        Parameters{.iterations = 1}, Parameters{.iterations = 2}, Parameters{.iterations = 3},
        Parameters{.norm_eps = 1e-3f, .hc_eps = 0.02f, .iterations = 3}}) {
    CheckIn(c, DType::kF32, p);
    CheckHead(c, DType::kF32, p);
  }
  InTensors t(device(), c, DType::kF32);
  const Values z = Slice(t.streams.Get(), 0, 80);
  const Weights w = t.weights();
  const Mixed plain = ExpectedIn(z, 4, w, {});
  EXPECT_FALSE(AllClose(ExpectedIn(z, 4, w, {.norm_eps = 3}).x, plain.x, {1e-2, 0}));
  EXPECT_FALSE(AllClose(ExpectedIn(z, 4, w, {.hc_eps = 0.3f}).comb, plain.comb, {1e-2, 0}));
  EXPECT_FALSE(AllClose(ExpectedIn(z, 4, w, {.iterations = 2}).comb, plain.comb, {1e-3, 0}));
  for (size_t i = 0; i < 3; ++i) {
    Weights other = w;
    other.scale[i] += 1;
    const Mixed moved = ExpectedIn(z, 4, other, {});
    EXPECT_EQ(i != 0, bool{AllClose(moved.x, plain.x, {1e-3, 0})});
    EXPECT_EQ(i != 1, bool{AllClose(moved.post, plain.post, {1e-3, 0})});
    EXPECT_EQ(i != 2, bool{AllClose(moved.comb, plain.comb, {1e-3, 0})});
  }
}

// Where the iterations lead to; the models stop at 20, with rows a little off.
TEST_P(HyperConnectionTest, MixingMatrixBecomesDoublyStochastic) {
  InTensors t(device(), {6, 4, 64, 0}, DType::kF32);
  ASSERT_TRUE(HyperConnectionIn(ctx(), t.Args({.iterations = 500})).ok());
  ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  const Values comb = t.comb.Get();
  for (size_t first = 0; first < comb.size(); first += 16) {
    for (size_t k = 0; k < 4; ++k) {
      double row = 0, column = 0;
      for (size_t j = 0; j < 4; ++j) {
        row += comb[first + 4 * k + j];
        column += comb[first + 4 * j + k];
      }
      EXPECT_NEAR(column, 1, 1e-5);
      EXPECT_NEAR(row, 1, 1e-4);
    }
  }
}

// Logits far outside exp's range: the softmax of a row is its largest entry's.
TEST_P(HyperConnectionTest, LargeLogitsStayFinite) {
  InTensors t(device(), {2, 4, 32, 0}, DType::kF32);
  t.scale.Set({200, -200, 500});
  ASSERT_TRUE(HyperConnectionIn(ctx(), t.Args({})).ok());
  ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  for (const GuardedTensor* out : {&t.x, &t.post, &t.comb}) {
    for (double value : out->Get()) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_P(HyperConnectionTest, TokensAreIndependentAndTwiceTheSame) {
  for (const HyperConnectionCase& c :
       {HyperConnectionCase{70, 4, 137, 0}, HyperConnectionCase{1030, 4, 384, 0}}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      InTensors all(device(), c, dtype);
      InTensors again(device(), c, dtype);
      ASSERT_TRUE(HyperConnectionIn(ctx(), all.Args({})).ok());
      const HyperConnectionInArgs whole = again.Args({});
      // One token, then two, and so on.
      for (int64_t first = 0, count = 1; first < c.tokens; first += count++) {
        HyperConnectionInArgs some = whole;
        for (TensorView* view : {&some.streams, &some.x, &some.post, &some.comb}) {
          *view = view->Rows(first, std::min(first + count, c.tokens));
        }
        ASSERT_TRUE(HyperConnectionIn(ctx(), some).ok());
      }
      ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
      EXPECT_EQ(all.x.GetBytes(), again.x.GetBytes());
      EXPECT_EQ(all.post.GetBytes(), again.post.GetBytes());
      EXPECT_EQ(all.comb.GetBytes(), again.comb.GetBytes());
    }
  }
}

TEST_P(HyperConnectionTest, WorkspaceIsWhatItSaysAndTooLittleIsRefused) {
  const HyperConnectionCase c = {41, 4, 512, 0};
  InTensors t(device(), c, DType::kBF16);
  const int64_t bytes = HyperConnectionWorkspaceBytes(device(), c.tokens, c.streams, c.width);
  EXPECT_EQ(bytes > 0, device().type() == DeviceType::kCuda);
  auto buffer = device().Allocate(bytes + 1);
  ASSERT_TRUE(buffer.ok());
  Workspace enough(buffer->data(), bytes);
  EXPECT_TRUE(HyperConnectionIn({device(), ctx().stream, enough}, t.Args({})).ok());
  ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  EXPECT_LE(enough.peak(), bytes);
  if (bytes == 0) return;
  Workspace little(buffer->data(), bytes - 1);
  EXPECT_EQ(HyperConnectionIn({device(), ctx().stream, little}, t.Args({})).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(HyperConnectionTest, NanStaysInItsToken) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    InTensors t(device(), {3, 4, 128, 0}, dtype);
    Values values = t.streams.Get();
    values[512 + 317] = kNan;
    t.streams.Set(values);
    ASSERT_TRUE(HyperConnectionIn(ctx(), t.Args({})).ok());
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
    for (const GuardedTensor* out : {&t.x, &t.post, &t.comb}) {
      const Values got = out->Get();
      const size_t a_token = got.size() / 3;
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / a_token == 1) << i;
    }
  }
}

TEST_P(HyperConnectionTest, BeginCopiesIntoEveryStream) {
  for (const HyperConnectionCase& c : kHyperConnectionCases) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      TestRng rng(static_cast<uint64_t>(c.tokens + c.width));
      GuardedTensor x(device(), dtype, {c.tokens, c.width}, c.row_padding);
      GuardedTensor streams(device(), dtype, {c.tokens, c.streams, c.width}, c.row_padding);
      x.SetNormal(rng);
      ASSERT_TRUE(HyperConnectionBegin(ctx(), {.x = x.view(), .streams = streams.view()}).ok());
      ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
      const Values given = x.Get();
      Values want;
      for (int64_t t = 0; t < c.tokens; ++t) {
        for (int64_t j = 0; j < c.streams; ++j) Append(want, Slice(given, t, c.width));
      }
      EXPECT_EQ(streams.Get(), want) << c.tokens << "x" << c.streams << "x" << c.width;
      EXPECT_TRUE(AllIntact({&x, &streams}));
    }
  }
}

TEST_P(HyperConnectionTest, RefusesWhatDoesNotFit) {
  InTensors t(device(), {2, 4, 8, 0}, DType::kF32);
  const HyperConnectionInArgs good = t.Args({});
  const auto in = [&](auto change) {
    HyperConnectionInArgs args = good;
    change(args);
    return std::string(HyperConnectionIn(ctx(), args).message());
  };
  EXPECT_EQ(in([&](auto& a) { a.fn = a.fn.Rows(0, 23); }),
            "HyperConnectionIn: fn.dim(0) = 23, want 24");
  EXPECT_EQ(in([&](auto& a) { a.fn = a.fn.Cols(0, 31); }),
            "HyperConnectionIn: fn.dim(1) = 31, want 32");
  EXPECT_EQ(in([&](auto& a) { a.scale = a.scale.Rows(0, 2); }),
            "HyperConnectionIn: scale.dim(0) = 2, want 3");
  EXPECT_EQ(in([&](auto& a) { a.post = a.post.Rows(0, 1); }),
            "HyperConnectionIn: post.dim(0) = 1, want 2");
  EXPECT_EQ(in([&](auto& a) { a.norm_eps = 0; }), "HyperConnectionIn: norm_eps must be positive");
  EXPECT_EQ(in([&](auto& a) { a.hc_eps = -1; }), "HyperConnectionIn: hc_eps must not be negative");
  EXPECT_EQ(in([&](auto& a) { a.sinkhorn_iters = 0; }),
            "HyperConnectionIn: sinkhorn_iters must be at least 1");
  GuardedTensor bf16(device(), DType::kBF16, {2, 8});
  EXPECT_EQ(in([&](auto& a) { a.x = bf16.view(); }),
            "HyperConnectionIn: x has dtype bfloat16, want float32");
  GuardedTensor nine(device(), DType::kF32, {2, 9, 8});
  EXPECT_EQ(in([&](auto& a) { a.streams = nine.view(); }),
            "HyperConnectionIn: streams must be from 1 to 8");
  EXPECT_EQ(HyperConnectionOut(
                ctx(),
                {.out = bf16.view(), .post = good.post, .comb = good.comb, .streams = good.streams})
                .message(),
            "HyperConnectionOut: out has dtype bfloat16, want float32");
  EXPECT_EQ(
      HyperConnectionBegin(ctx(), {.x = good.x.Cols(0, 7), .streams = good.streams}).message(),
      "HyperConnectionBegin: x.dim(1) = 7, want 8");
  EXPECT_EQ(
      HyperConnectionOut(
          ctx(),
          {.out = good.x, .post = good.post, .comb = good.comb.Cols(0, 3), .streams = good.streams})
          .message(),
      "HyperConnectionOut: comb.dim(2) = 3, want 4");
  EXPECT_EQ(HyperConnectionHead(ctx(), {.streams = good.streams,
                                        .fn = good.fn,
                                        .base = good.base,
                                        .scale = good.scale,
                                        .y = good.x,
                                        .norm_eps = 1})
                .message(),
            "HyperConnectionHead: fn.dim(0) = 24, want 4");
}

INSTANTIATE_TEST_SUITE_P(Devices, HyperConnectionTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
