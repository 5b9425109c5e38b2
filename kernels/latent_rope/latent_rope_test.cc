#include "kernels/latent_rope/latent_rope.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/latent_rope/latent_rope_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Variant {
  bool inverse = false;
  std::optional<float> norm_eps;
};

// One head, in place.
void ExpectHead(double* x, int64_t dim, double position, const Values& inv_freq,
                const Variant& variant) {
  if (variant.norm_eps) {
    double sum = 0;
    for (int64_t i = 0; i < dim; ++i) sum += x[i] * x[i];
    const double norm = std::sqrt(sum / static_cast<double>(dim) + *variant.norm_eps);
    for (int64_t i = 0; i < dim; ++i) x[i] /= norm;
  }
  double* pair = x + dim - 2 * static_cast<int64_t>(inv_freq.size());
  for (double frequency : inv_freq) {
    const double angle = position * frequency * (variant.inverse ? -1 : 1);
    const double a = pair[0], b = pair[1];
    pair[0] = a * std::cos(angle) - b * std::sin(angle);
    pair[1] = a * std::sin(angle) + b * std::cos(angle);
    pair += 2;
  }
}

struct Tensors {
  Tensors(Device& device, const LatentRopeCase& c)
      : x(device, c.dtype, {c.tokens, c.heads, c.dim}, c.padding),
        positions(device, DType::kI32, {c.tokens}),
        inv_freq(device, DType::kF32, {c.pairs}) {
    TestRng rng(static_cast<uint64_t>(c.tokens * 131 + c.dim));
    x.SetNormal(rng, 2);
    positions.SetIntegers(rng, 0, 1 << 20);
    inv_freq.SetUniform(rng, 0, 1);
  }

  LatentRopeArgs Args(const Variant& variant = {}) const {
    return {.x = x.view(),
            .positions = positions.view(),
            .inv_freq = inv_freq.view(),
            .inverse = variant.inverse,
            .norm_eps = variant.norm_eps};
  }

  Values Expected(const Variant& variant) const {
    Values want = x.Get();
    const Values at = positions.Get(), frequencies = inv_freq.Get();
    const int64_t dim = x.view().dim(2), heads = x.view().dim(1);
    for (int64_t row = 0; row < x.view().dim(0) * heads; ++row) {
      ExpectHead(want.data() + row * dim, dim, at[static_cast<size_t>(row / heads)], frequencies,
                 variant);
    }
    return want;
  }

  GuardedTensor x, positions, inv_freq;
};

class LatentRopeTest : public OpTest {
 protected:
  void Run(const LatentRopeArgs& args) {
    const absl::Status status = LatentRope(ctx(), args);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  }

  void Check(const LatentRopeCase& c, const Variant& variant) {
    SCOPED_TRACE(testing::Message() << c.tokens << "x" << c.heads << "x" << c.dim << ", " << c.pairs
                                    << " pairs, inverse " << variant.inverse << ", norm "
                                    << variant.norm_eps.value_or(0));
    Tensors t(device(), c);
    const Values want = t.Expected(variant);
    Run(t.Args(variant));
    const bool is_f32 = c.dtype == DType::kF32;
    EXPECT_TRUE(AllClose(t.x.Get(), want, {is_f32 ? 4e-6 : 1e-4, is_f32 ? 2e-6 : 4e-3}));
    EXPECT_TRUE(t.x.GuardsIntact() && t.positions.GuardsIntact() && t.inv_freq.GuardsIntact());
  }
};

TEST_P(LatentRopeTest, MatchesTheFormulas) {
  for (const LatentRopeCase& c : kLatentRopeCases) {
    for (const Variant& variant : {Variant{false, std::nullopt}, Variant{true, std::nullopt},
                                   Variant{false, 1e-6f}, Variant{true, 0.5f}}) {
      Check(c, variant);
    }
  }
}

TEST_P(LatentRopeTest, PairsAreNeighboursAtTheEnd) {
  GuardedTensor x(device(), DType::kF32, {1, 1, 6});
  GuardedTensor positions(device(), DType::kI32, {1});
  GuardedTensor inv_freq(device(), DType::kF32, {2});
  x.Set({1, 2, 3, 4, 5, 6});
  positions.Set({1});
  inv_freq.Set({M_PI / 2, M_PI});
  Run({.x = x.view(), .positions = positions.view(), .inv_freq = inv_freq.view()});
  EXPECT_TRUE(AllClose(x.Get(), {1, 2, -4, 3, -5, -6}, {1e-5, 0}));
}

TEST_P(LatentRopeTest, InverseUndoes) {
  Tensors t(device(), {17, 3, 40, 12});
  const Values before = t.x.Get();
  Run(t.Args());
  EXPECT_FALSE(AllClose(t.x.Get(), before, {0.1, 0}));
  Run(t.Args({.inverse = true}));
  EXPECT_TRUE(AllClose(t.x.Get(), before, {1e-5, 1e-5}));
}

TEST_P(LatentRopeTest, EpsilonMattersAndZerosStayZeros) {
  Tensors t(device(), {1, 1, 4, 1});
  t.x.Set({1e-3, 0, 0, 0});
  const Values want = t.Expected({.norm_eps = 1e-6f});
  Run(t.Args({.norm_eps = 1e-6f}));
  EXPECT_TRUE(AllClose(t.x.Get(), want, {1e-6, 1e-6}));
  EXPECT_NEAR(t.x.Get()[0], 2 / std::sqrt(5), 1e-5);
  t.x.SetAll(0);
  Run(t.Args({.norm_eps = 1e-6f}));
  EXPECT_EQ(t.x.Get(), Values(4, 0));
}

TEST_P(LatentRopeTest, NanStaysInItsHead) {
  for (const Variant& variant : {Variant{}, Variant{.norm_eps = 1e-6f}}) {
    Tensors t(device(), {2, 2, 8, 2});
    Values x(32, 1);
    x[9] = kNan;  // token 0, head 1, a channel that is not rotated
    t.x.Set(x);
    const Values want = t.Expected(variant);
    Run(t.Args(variant));
    EXPECT_TRUE(AllClose(t.x.Get(), want, {4e-6, 2e-6}));
  }
}

TEST_P(LatentRopeTest, HeadsAreIndependent) {
  for (const LatentRopeCase& c :
       {LatentRopeCase{33, 5, 96, 24, 3}, LatentRopeCase{33, 5, 96, 24, 8, DType::kBF16}}) {
    Tensors all(device(), c), again(device(), c);
    const Variant variant = {.norm_eps = 1e-6f};
    Run(all.Args(variant));
    for (int64_t t = 0; t < c.tokens; ++t) {
      for (int64_t n = 0; n < c.heads; ++n) {
        LatentRopeArgs one = again.Args(variant);
        one.x = one.x.Rows(t, t + 1);
        one.x.data = one.x.as<char>() + n * one.x.stride(1) * DTypeBytes(c.dtype);
        one.x.dims[1] = 1;
        one.positions = one.positions.Rows(t, t + 1);
        Run(one);
      }
    }
    EXPECT_EQ(all.x.GetBytes(), again.x.GetBytes());
  }
}

TEST_P(LatentRopeTest, RefusesWhatDoesNotFit) {
  Tensors t(device(), {2, 3, 8, 4});
  const auto message = [&](auto change) {
    LatentRopeArgs args = t.Args();
    change(args);
    return std::string(LatentRope(ctx(), args).message());
  };
  EXPECT_EQ(message([](auto& a) { a.positions = a.positions.Rows(0, 1); }),
            "LatentRope: positions.dim(0) = 1, want 2");
  EXPECT_EQ(message([](auto& a) { a.x = a.x.Cols(0, 7); }),
            "LatentRope: inv_freq must have at most half as many elements as a head, and 512");
  EXPECT_EQ(message([](auto& a) { a.norm_eps = 0.0f; }), "LatentRope: norm_eps must be positive");
  EXPECT_EQ(message([](auto& a) { a.inv_freq.dtype = DType::kBF16; }),
            "LatentRope: inv_freq has dtype bfloat16, want float32");
  EXPECT_EQ(message([](auto& a) { a.x.rank = 2; }), "LatentRope: x has rank 2, want 3");
}

INSTANTIATE_TEST_SUITE_P(Devices, LatentRopeTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
