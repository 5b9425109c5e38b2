#include "kernels/kv_append/kv_append.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/kv_append/kv_append_cases.h"
#include "kernels/lowp/small_float.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

struct Operands {
  Operands(Device& device, const KvAppendCase& c, uint64_t seed)
      : k(device, c.from, {c.tokens, c.heads, c.dim}, c.padding),
        v(device, c.from, {c.tokens, c.heads, c.dim}, 2 * c.padding),
        slots(device, DType::kI64, {c.tokens}),
        k_cache(device, c.cache, {c.pages, c.heads, c.page_tokens, c.dim}, c.padding),
        v_cache(device, c.cache, {c.pages, c.heads, c.page_tokens, c.dim}, 3 * c.padding),
        k_scale(device, DType::kF32, {c.heads}),
        v_scale(device, DType::kF32, {c.heads}) {
    TestRng rng(seed);
    k.SetNormal(rng);
    v.SetNormal(rng);
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

  KvAppendArgs Args() const {
    KvAppendArgs args = {.k = k.view(),
                         .v = v.view(),
                         .slots = slots.view(),
                         .k_cache = k_cache.view(),
                         .v_cache = v_cache.view()};
    if (args.k_cache.dtype != DType::kU8) return args;
    args.k_scale = k_scale.view();
    args.v_scale = v_scale.view();
    return args;
  }

  // The cache after the call: element by element, rounded as the cache stores.
  std::vector<double> Oracle(const GuardedTensor& from, const GuardedTensor& cache,
                             const GuardedTensor& scale) const {
    std::vector<double> out = cache.Get();
    const std::vector<double> x = from.Get(), at = slots.Get(), scales = scale.Get();
    const int64_t heads = from.view().dim(1), dim = from.view().dim(2);
    const int64_t page_tokens = cache.view().dim(2);
    for (size_t t = 0; t < at.size(); ++t) {
      const int64_t slot = static_cast<int64_t>(at[t]);
      if (slot < 0) continue;
      for (int64_t n = 0; n < heads; ++n) {
        for (int64_t d = 0; d < dim; ++d) {
          const float value = static_cast<float>(
              x[static_cast<size_t>((static_cast<int64_t>(t) * heads + n) * dim + d)]);
          const int64_t row = (slot / page_tokens * heads + n) * page_tokens + slot % page_tokens;
          out[static_cast<size_t>(row * dim + d)] =
              Stored(value, static_cast<float>(scales[static_cast<size_t>(n)]), cache.view().dtype);
        }
      }
    }
    return out;
  }

  static double Stored(float x, float scale, DType dtype) {
    if (dtype == DType::kF32) return x;
    if (dtype == DType::kBF16) return ToFloat(ToBFloat16(x));
    const float inverse = 1 / scale;
    return EncodeE4M3(x * inverse);
  }

  GuardedTensor k, v, slots, k_cache, v_cache, k_scale, v_scale;
};

class KvAppendTest : public OpTest {
 protected:
  void ExpectRefused(const KvAppendArgs& args, const std::string& message) {
    const absl::Status status = KvAppend(ctx(), args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), message);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, KvAppendTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

TEST_P(KvAppendTest, WritesTheSlotsAndNothingElse) {
  std::vector<KvAppendCase> cases(std::begin(kKvAppendAwkward), std::end(kKvAppendAwkward));
  cases.insert(cases.end(), std::begin(kKvAppendServed), std::end(kKvAppendServed));
  for (const KvAppendCase& c : cases) {
    SCOPED_TRACE(c.name);
    Operands o(device(), c, 5);
    const std::vector<double> k = o.Oracle(o.k, o.k_cache, o.k_scale);
    const std::vector<double> v = o.Oracle(o.v, o.v_cache, o.v_scale);
    const absl::Status status = KvAppend(ctx(), o.Args());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(o.k_cache.Get(), k);
    EXPECT_EQ(o.v_cache.Get(), v);
    EXPECT_TRUE(o.k_cache.GuardsIntact());
    EXPECT_TRUE(o.v_cache.GuardsIntact());
  }
}

TEST_P(KvAppendTest, RoundsSpecialValuesLikeTheConversion) {
  Operands o(device(), {"", 1, 1, 4, 1, 1}, 6);
  const double inf = std::numeric_limits<double>::infinity();
  o.k.Set({inf, -inf, std::numeric_limits<double>::quiet_NaN(), 3.4e38});
  o.slots.Set({0});
  ASSERT_TRUE(KvAppend(ctx(), o.Args()).ok());
  EXPECT_TRUE(AllClose(o.k_cache.Get(), {inf, -inf, std::nan(""), inf}, {}));
}

TEST_P(KvAppendTest, CodesSaturateAndKeepNaN) {
  for (const DType from : {DType::kF32, DType::kBF16}) {
    Operands o(device(), {"", 1, 2, 8, 1, 1, from, DType::kU8, 8}, 6);
    const double inf = std::numeric_limits<double>::infinity();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    o.k.Set({inf, -inf, nan, 900, -900, 0, 0x1p-9, 0x1p-10, 1, -1, 2, 3, 4, 5, 6, nan});
    o.k_scale.Set({1, 0.5});
    o.slots.Set({0});
    ASSERT_TRUE(KvAppend(ctx(), o.Args()).ok());
    const std::vector<uint8_t> want = {0x7e, 0xfe, 0x7f, 0x7e, 0xfe, 0,    1,    0,
                                       0x40, 0xc0, 0x48, 0x4c, 0x50, 0x52, 0x54, 0x7f};
    EXPECT_EQ(o.k_cache.GetBytes(), want);
  }
}

TEST_P(KvAppendTest, TwoRunsAgreeBitForBitOnAnyNumberOfThreads) {
  DeviceUnderTest other = GetParam();
  other.threads = other.threads == 1 ? 2 : 1;
  OpTestBed bed(other);
  const KvAppendCase& c = kKvAppendServed[1];
  Operands first(device(), c, 7), second(bed.device(), c, 7);
  ASSERT_TRUE(KvAppend(ctx(), first.Args()).ok());
  ASSERT_TRUE(KvAppend(bed.ctx(), second.Args()).ok());
  EXPECT_EQ(first.k_cache.GetBytes(), second.k_cache.GetBytes());
  const std::vector<uint8_t> once = first.v_cache.GetBytes();
  ASSERT_TRUE(KvAppend(ctx(), first.Args()).ok());
  EXPECT_EQ(first.v_cache.GetBytes(), once);
}

TEST_P(KvAppendTest, RefusesSlotsOutsideTheCacheAndWritesNothing) {
  if (device().type() != DeviceType::kCpu) return;  // see the next test
  for (const double slot : {8.0, -2.0}) {
    Operands o(device(), {"", 3, 1, 4, 2, 4}, 8);
    o.slots.Set({0, 5, slot});
    const std::vector<uint8_t> before = o.k_cache.GetBytes();
    ExpectRefused(o.Args(), std::string("KvAppend: slots[2] = ") + (slot > 0 ? "8" : "-2") +
                                ", want -1 to 7");
    EXPECT_EQ(o.k_cache.GetBytes(), before);
  }
}

TEST_P(KvAppendTest, OnTheGpuSlotsOutsideTheCacheCountAsNone) {
  if (device().type() == DeviceType::kCpu) return;
  for (const double slot : {8.0, -2.0, 4294967296.0, -4294967296.0}) {
    Operands o(device(), {"", 3, 1, 4, 2, 4}, 8), same(device(), {"", 3, 1, 4, 2, 4}, 8);
    o.slots.Set({0, 5, slot});
    same.slots.Set({0, 5, -1});
    ASSERT_TRUE(KvAppend(ctx(), o.Args()).ok());
    ASSERT_TRUE(KvAppend(ctx(), same.Args()).ok());
    EXPECT_EQ(o.k_cache.GetBytes(), same.k_cache.GetBytes());
    EXPECT_TRUE(o.k_cache.GuardsIntact());
    EXPECT_TRUE(o.v_cache.GuardsIntact());
  }
}

TEST_P(KvAppendTest, RefusesWhatDoesNotFit) {
  Operands o(device(), {"", 3, 2, 8, 2, 4}, 9);
  KvAppendArgs args = o.Args();
  args.v = o.v.view().Rows(0, 2);
  ExpectRefused(args, "KvAppend: v.dim(0) = 2, want 3");
  args = o.Args();
  args.v.dtype = DType::kBF16;
  ExpectRefused(args, "KvAppend: v has dtype bfloat16, want float32");
  args = o.Args();
  args.slots.dtype = DType::kI32;
  ExpectRefused(args, "KvAppend: slots has dtype int32, want int64");
  args = o.Args();
  args.k_cache.dims[1] = 3;
  ExpectRefused(args, "KvAppend: k_cache.dim(1) = 3, want 2");
  args = o.Args();
  args.v_cache = o.v_cache.view().Rows(0, 1);
  ExpectRefused(args, "KvAppend: v_cache.dim(0) = 1, want 2");
  args = o.Args();
  args.v_cache.dtype = DType::kF32;
  ExpectRefused(args, "KvAppend: v_cache has dtype float32, want bfloat16");
  args = o.Args();
  args.k_scale = o.k_scale.view();
  ExpectRefused(args, "KvAppend: k_scale and v_scale belong to a cache of uint8");
  Operands codes(device(), {"", 3, 2, 8, 2, 4, DType::kF32, DType::kU8}, 9);
  args = codes.Args();
  args.k_scale = {};
  ExpectRefused(args, "KvAppend: k_scale has rank 0, want 1");
  args = codes.Args();
  args.v_scale = codes.v_scale.view().Rows(0, 1);
  ExpectRefused(args, "KvAppend: v_scale.dim(0) = 1, want 2");
  args = o.Args();
  args.k.data = nullptr;
  ExpectRefused(args, "KvAppend: k has no data");
}

}  // namespace
}  // namespace millrace
