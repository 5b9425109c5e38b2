#include "kernels/rope_append/rope_append.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/lowp/small_float.h"
#include "kernels/rope_append/rope_append_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

struct Operands {
  Operands(Device& device, const RopeAppendCase& c, uint64_t seed, int64_t last_position = 8192)
      : q(device, c.from, {c.tokens, c.q_heads, c.dim}, c.padding),
        k(device, c.from, {c.tokens, c.kv_heads, c.dim}, 2 * c.padding),
        v(device, c.from, {c.tokens, c.kv_heads, c.dim}, c.padding),
        positions(device, DType::kI32, {c.tokens}),
        inv_freq(device, DType::kF32, {c.dim / 2}),
        slots(device, DType::kI64, {c.tokens}),
        k_cache(device, c.cache, {c.pages, c.kv_heads, c.page_tokens, c.dim}, c.padding),
        v_cache(device, c.cache, {c.pages, c.kv_heads, c.page_tokens, c.dim}, 3 * c.padding),
        k_scale(device, DType::kF32, {c.kv_heads}),
        v_scale(device, DType::kF32, {c.kv_heads}) {
    TestRng rng(seed);
    for (GuardedTensor* t : {&q, &k, &v}) t->SetNormal(rng);
    positions.SetIntegers(rng, 0, last_position);
    std::vector<double> frequencies(static_cast<size_t>(c.dim / 2));
    for (size_t i = 0; i < frequencies.size(); ++i) {
      frequencies[i] = std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(c.dim));
    }
    inv_freq.Set(frequencies);
    const bool codes = c.cache == DType::kU8;
    k_cache.SetAll(codes ? 0x82 : -2);
    v_cache.SetAll(codes ? 0x83 : -3);
    // From what leaves most values subnormal to what saturates some.
    k_scale.SetUniform(rng, 0.003, 0.3);
    v_scale.SetUniform(rng, 3, 30);
    std::vector<double> all(static_cast<size_t>(c.pages * c.page_tokens));
    std::iota(all.begin(), all.end(), 0.0);
    for (size_t i = all.size(); i > 1; --i) {
      std::swap(all[i - 1], all[static_cast<size_t>(rng.Integer(0, static_cast<int64_t>(i) - 1))]);
    }
    all.resize(static_cast<size_t>(c.tokens), -1);
    for (size_t t = 3; t < all.size(); t += 5) all[t] = -1;  // some tokens go nowhere
    slots.Set(all);
  }

  RopeAppendArgs Args() const {
    RopeAppendArgs args = {.q = q.view(),
                           .k = k.view(),
                           .v = v.view(),
                           .positions = positions.view(),
                           .inv_freq = inv_freq.view(),
                           .slots = slots.view(),
                           .k_cache = k_cache.view(),
                           .v_cache = v_cache.view()};
    if (args.k_cache.dtype != DType::kU8) return args;
    args.k_scale = k_scale.view();
    args.v_scale = v_scale.view();
    return args;
  }

  // Rotated by the formula, in double.
  std::vector<double> Rotated(const GuardedTensor& x) const {
    std::vector<double> out = x.Get();
    const std::vector<double> at = positions.Get(), frequency = inv_freq.Get();
    const size_t heads = static_cast<size_t>(x.view().dim(1)), half = frequency.size();
    for (size_t row = 0; row < at.size() * heads; ++row) {
      double* head = out.data() + row * 2 * half;
      for (size_t i = 0; i < half; ++i) {
        const double angle = at[row / heads] * frequency[i];
        const double a = head[i], b = head[i + half];
        head[i] = a * std::cos(angle) - b * std::sin(angle);
        head[i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
    return out;
  }

  // Rows [T, M, D] in what a code of 1 stands for, as far as codes reach.
  static std::vector<double> InScales(std::vector<double> rows, const GuardedTensor& scale,
                                      int64_t dim) {
    const std::vector<double> scales = scale.Get();
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] /= scales[i / static_cast<size_t>(dim) % scales.size()];
      rows[i] = std::clamp(rows[i], -448.0, 448.0);
    }
    return rows;
  }

  // What a cache holds; the values of codes.
  static std::vector<double> Held(const GuardedTensor& cache) {
    std::vector<double> values = cache.Get();
    if (cache.view().dtype != DType::kU8) return values;
    for (double& x : values) x = kE4M3Values[static_cast<size_t>(x)];
    return values;
  }

  // The cache after rows [T, M, D] were written to the slots, not rounded.
  std::vector<double> Appended(const std::vector<double>& rows, const GuardedTensor& cache) const {
    std::vector<double> out = Held(cache);
    const std::vector<double> at = slots.Get();
    const int64_t heads = cache.view().dim(1), page_tokens = cache.view().dim(2);
    const int64_t dim = cache.view().dim(3);
    for (int64_t t = 0; t < static_cast<int64_t>(at.size()); ++t) {
      const int64_t slot = static_cast<int64_t>(at[static_cast<size_t>(t)]);
      if (slot < 0) continue;
      for (int64_t n = 0; n < heads; ++n) {
        const int64_t to = (slot / page_tokens * heads + n) * page_tokens + slot % page_tokens;
        std::copy_n(rows.begin() + (t * heads + n) * dim, dim, out.begin() + to * dim);
      }
    }
    return out;
  }

  GuardedTensor q, k, v, positions, inv_freq, slots, k_cache, v_cache, k_scale, v_scale;
};

// Half a code's last place: 2^-4 of a value, or 2^-10 among the subnormal ones; and what the
// rotation is off, in units of the smallest scale.
constexpr Tolerance kOfCodes = {.absolute = 0x1p-10 + 1e-3, .relative = 0x1p-4 + 1e-5};

// sin and cos are within 1.5e-7, values reach 5; bf16 results add half a unit in their last place.
Tolerance ToleranceOf(DType dtype) {
  return {.absolute = 3e-6, .relative = dtype == DType::kF32 ? 0 : 1.0 / 256};
}

class RopeAppendTest : public OpTest {
 protected:
  void ExpectRight(const RopeAppendCase& c, int64_t last_position = 8192) {
    SCOPED_TRACE(c.name);
    Operands o(device(), c, 3, last_position);
    const bool codes = c.cache == DType::kU8;
    const auto in_scales = [&](const std::vector<double>& rows, const GuardedTensor& scale) {
      return codes ? Operands::InScales(rows, scale, c.dim) : rows;
    };
    const std::vector<double> q = o.Rotated(o.q);
    const std::vector<double> k = o.Appended(in_scales(o.Rotated(o.k), o.k_scale), o.k_cache);
    std::vector<double> v = o.Appended(in_scales(o.v.Get(), o.v_scale), o.v_cache);
    for (double& x : v) {  // rounded once, or not at all
      if (c.cache == DType::kBF16) x = ToFloat(ToBFloat16(static_cast<float>(x)));
    }
    const std::vector<uint8_t> keys = o.k.GetBytes(), values = o.v.GetBytes();
    const absl::Status status = RopeAppend(ctx(), o.Args());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(AllClose(o.q.Get(), q, ToleranceOf(c.from)));
    if (codes) {
      EXPECT_TRUE(AllClose(Operands::Held(o.k_cache), k, kOfCodes));
      EXPECT_TRUE(AllClose(Operands::Held(o.v_cache), v, kOfCodes));
    } else {
      EXPECT_TRUE(AllClose(o.k_cache.Get(), k, ToleranceOf(c.cache)));
      EXPECT_EQ(o.v_cache.Get(), v);
    }
    EXPECT_EQ(o.k.GetBytes(), keys);
    EXPECT_EQ(o.v.GetBytes(), values);
    for (const GuardedTensor* t : {&o.q, &o.k, &o.v, &o.k_cache, &o.v_cache}) {
      EXPECT_TRUE(t->GuardsIntact());
    }
  }

  void ExpectRefused(const RopeAppendArgs& args, const std::string& message) {
    const absl::Status status = RopeAppend(ctx(), args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), message);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, RopeAppendTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

TEST_P(RopeAppendTest, MatchesTheFormula) {
  for (const RopeAppendCase& c : kRopeAppendAwkward) ExpectRight(c);
  for (const RopeAppendCase& c : kRopeAppendServed) ExpectRight(c);
}

TEST_P(RopeAppendTest, MatchesTheFormulaAtAMillion) {
  ExpectRight({"far", 100, 2, 1, 128, 7, 16, DType::kF32, DType::kF32}, 1048576);
}

// The parts of one qkv row.
TEST_P(RopeAppendTest, TakesPartsOfAWiderRow) {
  const RopeAppendCase c{"", 6, 4, 2, 32, 2, 8, DType::kBF16, DType::kBF16};
  Operands want(device(), c, 5), got(device(), c, 5);
  ASSERT_TRUE(RopeAppend(ctx(), want.Args()).ok());
  GuardedTensor qkv(device(), DType::kBF16, {6, 8, 32});
  const std::vector<double> q = got.q.Get(), k = got.k.Get(), v = got.v.Get();
  std::vector<double> rows;
  for (size_t t = 0; t < 6; ++t) {
    rows.insert(rows.end(), q.begin() + t * 128, q.begin() + (t + 1) * 128);
    rows.insert(rows.end(), k.begin() + t * 64, k.begin() + (t + 1) * 64);
    rows.insert(rows.end(), v.begin() + t * 64, v.begin() + (t + 1) * 64);
  }
  qkv.Set(rows);
  RopeAppendArgs args = got.Args();
  args.q = args.k = args.v = qkv.view();
  args.q.dims[1] = 4;
  args.k.dims[1] = args.v.dims[1] = 2;
  args.k.data = qkv.view().as<BFloat16>() + 4 * 32;
  args.v.data = qkv.view().as<BFloat16>() + 6 * 32;
  ASSERT_TRUE(RopeAppend(ctx(), args).ok());
  EXPECT_EQ(got.k_cache.GetBytes(), want.k_cache.GetBytes());
  EXPECT_EQ(got.v_cache.GetBytes(), want.v_cache.GetBytes());
  const std::vector<double> rotated = want.q.Get();
  for (size_t t = 0; t < 6; ++t) {
    std::copy_n(rotated.begin() + t * 128, 128, rows.begin() + t * 256);
  }
  EXPECT_EQ(qkv.Get(), rows);
}

TEST_P(RopeAppendTest, NaNStaysInItsPair) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Operands o(device(), {"", 1, 1, 1, 32, 1, 1, DType::kBF16, DType::kBF16}, 6);
  for (GuardedTensor* t : {&o.q, &o.k, &o.v}) {
    std::vector<double> x = t->Get();
    x[5] = nan;
    t->Set(x);
  }
  o.slots.Set({0});
  ASSERT_TRUE(RopeAppend(ctx(), o.Args()).ok());
  const std::vector<double> q = o.q.Get(), k = o.k_cache.Get(), v = o.v_cache.Get();
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(std::isnan(q[i]), i == 5 || i == 21) << i;
    EXPECT_EQ(std::isnan(k[i]), i == 5 || i == 21) << i;
    EXPECT_EQ(std::isnan(v[i]), i == 5) << i;
  }
}

// The values' codes are what KvAppend() makes of them, the keys' too where nothing turns.
TEST_P(RopeAppendTest, CodesSaturateAndKeepNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType from : {DType::kF32, DType::kBF16}) {
    Operands o(device(), {"", 1, 1, 1, 16, 1, 1, from, DType::kU8, 8}, 6);
    o.k.Set({0x1p-9, 0x1p-10, 900, -900, 1, -1, 2, 3, 0, 0, 0, 0, 0, 0, 0, nan});
    o.v.Set({inf, -inf, nan, 900, -900, 0, 0x1p-9, 0x1p-10, 1, -1, 2, 3, 4, 5, 6, nan});
    o.k_scale.Set({1});
    o.v_scale.Set({0.5});
    o.positions.Set({0});
    o.slots.Set({0});
    ASSERT_TRUE(RopeAppend(ctx(), o.Args()).ok());
    const std::vector<uint8_t> keys = {1, 0, 0x7e, 0xfe, 0x38, 0xb8, 0x40, 0x7f,
                                       0, 0, 0,    0,    0,    0,    0,    0x7f};
    const std::vector<uint8_t> values = {0x7e, 0xfe, 0x7f, 0x7e, 0xfe, 0,    2,    1,
                                         0x40, 0xc0, 0x48, 0x4c, 0x50, 0x52, 0x54, 0x7f};
    EXPECT_EQ(o.k_cache.GetBytes(), keys);
    EXPECT_EQ(o.v_cache.GetBytes(), values);
  }
}

TEST_P(RopeAppendTest, TwoRunsAgreeBitForBitOnAnyNumberOfThreads) {
  DeviceUnderTest other = GetParam();
  other.threads = other.threads == 1 ? 2 : 1;
  OpTestBed bed(other);
  for (const RopeAppendCase& c :
       {kRopeAppendServed[1], kRopeAppendAwkward[8], std::end(kRopeAppendAwkward)[-1]}) {
    Operands first(device(), c, 7), second(bed.device(), c, 7);
    ASSERT_TRUE(RopeAppend(ctx(), first.Args()).ok());
    ASSERT_TRUE(RopeAppend(bed.ctx(), second.Args()).ok());
    EXPECT_EQ(first.q.GetBytes(), second.q.GetBytes());
    EXPECT_EQ(first.k_cache.GetBytes(), second.k_cache.GetBytes());
    EXPECT_EQ(first.v_cache.GetBytes(), second.v_cache.GetBytes());
  }
}

TEST_P(RopeAppendTest, SlotsOutsideTheCache) {
  const RopeAppendCase c{"", 3, 2, 1, 16, 2, 4, DType::kBF16, DType::kBF16};
  for (const double slot : {8.0, -2.0, 4294967296.0}) {
    Operands o(device(), c, 8), same(device(), c, 8);
    o.slots.Set({0, 5, slot});
    same.slots.Set({0, 5, -1});
    const std::vector<uint8_t> before = o.k_cache.GetBytes();
    if (device().type() == DeviceType::kCpu) {
      EXPECT_EQ(RopeAppend(ctx(), o.Args()).code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(o.k_cache.GetBytes(), before);
      continue;
    }
    ASSERT_TRUE(RopeAppend(ctx(), o.Args()).ok());
    ASSERT_TRUE(RopeAppend(ctx(), same.Args()).ok());
    EXPECT_EQ(o.q.GetBytes(), same.q.GetBytes());
    EXPECT_EQ(o.k_cache.GetBytes(), same.k_cache.GetBytes());
    EXPECT_TRUE(o.k_cache.GuardsIntact());
    EXPECT_TRUE(o.v_cache.GuardsIntact());
  }
}

TEST_P(RopeAppendTest, RefusesWhatDoesNotFit) {
  Operands o(device(), {"", 3, 4, 2, 8, 2, 4}, 9);
  RopeAppendArgs args = o.Args();
  args.k = o.k.view().Rows(0, 2);
  ExpectRefused(args, "RopeAppend: k.dim(0) = 2, want 3");
  args = o.Args();
  args.v.dims[1] = 1;
  ExpectRefused(args, "RopeAppend: v.dim(1) = 1, want 2");
  args = o.Args();
  args.k.dtype = DType::kBF16;
  ExpectRefused(args, "RopeAppend: k has dtype bfloat16, want float32");
  args = o.Args();
  args.positions.dtype = DType::kI64;
  ExpectRefused(args, "RopeAppend: positions has dtype int64, want int32");
  args = o.Args();
  args.inv_freq.dims[0] = 3;
  ExpectRefused(args, "RopeAppend: inv_freq.dim(0) = 3, want 4");
  args = o.Args();
  args.slots.dtype = DType::kI32;
  ExpectRefused(args, "RopeAppend: slots has dtype int32, want int64");
  args = o.Args();
  args.k_cache.dims[1] = 3;
  ExpectRefused(args, "RopeAppend: k_cache.dim(1) = 3, want 2");
  args = o.Args();
  args.v_cache.dtype = DType::kF32;
  ExpectRefused(args, "RopeAppend: v_cache has dtype float32, want bfloat16");
  args = o.Args();
  args.v_scale = o.v_scale.view();
  ExpectRefused(args, "RopeAppend: k_scale and v_scale belong to a cache of uint8");
  Operands codes(device(), {"", 3, 4, 2, 8, 2, 4, DType::kF32, DType::kU8}, 9);
  args = codes.Args();
  args.k_scale = codes.k_scale.view().Rows(0, 1);
  ExpectRefused(args, "RopeAppend: k_scale.dim(0) = 1, want 2");
  Operands odd(device(), {"", 3, 4, 2, 7, 2, 4}, 9);
  ExpectRefused(odd.Args(), "RopeAppend: q.dim(2) must be even and at most 512");
}

}  // namespace
}  // namespace millrace
