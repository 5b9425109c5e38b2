#include "kernels/latent_append/latent_append.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/latent_append/latent_append_cases.h"
#include "kernels/latent_cache/latent_row.h"
#include "kernels/latent_cache/testing.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Tensors {
  Tensors(Device& device, const LatentAppendCase& c)
      : rows(device, c.from, {c.tokens, c.dim}, c.padding),
        slots(device, DType::kI64, {c.tokens}),
        store(LatentStore(device, c.store, c.pages, c.page_tokens, c.dim)) {
    TestRng rng(static_cast<uint64_t>(c.tokens * 31 + c.dim));
    rows.SetNormal(rng, 3);
    FillLatentStore(store, rng);
    Values order(static_cast<size_t>(c.pages * c.page_tokens));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size() - 1; i > 0; --i) {
      std::swap(order[i], order[static_cast<size_t>(rng.Integer(0, static_cast<int64_t>(i)))]);
    }
    order.resize(static_cast<size_t>(c.tokens), -1);
    for (size_t t = 2; t < order.size(); t += 5) order[t] = -1;
    slots.Set(order);
  }

  LatentAppendArgs Args() const {
    return {.rows = rows.view(), .slots = slots.view(), .store = store.view()};
  }

  Values Row(int64_t t) const {
    const Values all = rows.Get();
    const int64_t dim = rows.view().dim(1);
    return Values(all.begin() + t * dim, all.begin() + (t + 1) * dim);
  }

  GuardedTensor rows, slots, store;
};

class LatentAppendTest : public OpTest {
 protected:
  void Run(const LatentAppendArgs& args) {
    const absl::Status status = LatentAppend(ctx(), args);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  }

  void Check(const LatentAppendCase& c) {
    SCOPED_TRACE(testing::Message() << c.tokens << " tokens of " << c.dim << " into "
                                    << std::string(DTypeName(c.store)));
    Tensors t(device(), c);
    TestRows want = LatentStoreRows(t.store);
    const Values slots = t.slots.Get();
    for (int64_t i = 0; i < c.tokens; ++i) {
      const double slot = slots[static_cast<size_t>(i)];
      if (slot >= 0) want[static_cast<size_t>(slot)] = AsStored(t.Row(i), c.store);
    }
    Run(t.Args());
    EXPECT_EQ(LatentStoreRows(t.store), want);
    EXPECT_TRUE(t.rows.GuardsIntact() && t.slots.GuardsIntact() && t.store.GuardsIntact());
  }
};

TEST_P(LatentAppendTest, WritesWhatTheFormatGivesBack) {
  for (const LatentAppendCase& c : kLatentAppendCases) Check(c);
}

TEST_P(LatentAppendTest, Fp8PagesHaveAllDataBeforeAllScales) {
  Tensors t(device(), {1, 512, 2, 3, DType::kF32, DType::kU8});
  Values row(512, 0);
  row[0] = 448;    // scale 1: code 0x7e
  row[64] = -3.5;  // scale 2^-7: 448, again
  row[448] = 1;    // bf16 0x3f80
  row[511] = -2;   // bf16 0xc000
  t.rows.Set(row);
  t.slots.Set({4});  // page 1, row 1
  t.store.SetAll(77);
  Run(t.Args());
  Values want(2 * 3 * 584, 77);
  const size_t page = 3 * 584;
  std::fill_n(want.begin() + static_cast<int64_t>(page) + 576, 576, 0);
  want[page + 576] = 0x7e;
  want[page + 576 + 64] = 0xfe;
  want[page + 576 + 448 + 1] = 0x3f;
  want[page + 576 + 448] = 0x80;
  want[page + 576 + 575] = 0xc0;
  const Values scales = {127, 120, 105, 105, 105, 105, 105, 0};  // zeros: 2^-22
  std::copy(scales.begin(), scales.end(), want.begin() + static_cast<int64_t>(page) + 3 * 576 + 8);
  EXPECT_EQ(t.store.Get(), want);
}

TEST_P(LatentAppendTest, Fp8AtTheEdges) {
  Tensors t(device(), {4, 512, 1, 4, DType::kF32, DType::kU8});
  Values rows;
  const auto append = [&](auto value) {
    for (int i = 0; i < 512; ++i) rows.push_back(static_cast<float>(value(i)));
  };
  append([](int i) { return std::ldexp(1 + i % 16 / 16.0, i % 23 - 12) * (i % 2 ? 1 : -1); });
  append([](int i) { return 1e-4 * (i % 64) / 64; });                  // below the floor
  append([](int i) { return i % 64 == 5 ? 448.1 : 1e-2 * (i % 7); });  // one above a power of two
  append([](int i) { return i == 70 ? kNan : i == 130 ? -kInfinity : i == 500 ? kInfinity : 1.0; });
  t.rows.Set(rows);
  t.slots.Set({0, 1, 2, 3});
  Run(t.Args());
  const TestRows got = LatentStoreRows(t.store);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(AllClose(got[static_cast<size_t>(i)], AsStored(t.Row(i), DType::kU8), {0, 0}))
        << "row " << i;
  }
}

// The bits, with magnitudes of all exponents and each place in a power of two; no NaN in the bf16
// part, whose payload is not the format's.
TEST_P(LatentAppendTest, Fp8BytesAreOneFunctionOfTheRow) {
  constexpr int64_t kTokens = 263;
  for (DType from : {DType::kF32, DType::kBF16}) {
    Tensors t(device(), {kTokens, 512, 3, 96, from, DType::kU8});
    TestRng rng(5);
    Values rows, slots;
    for (int64_t token = 0; token < kTokens; ++token) {
      slots.push_back(static_cast<double>(token));
      for (int64_t i = 0; i < 512; ++i) {
        const int exponent = static_cast<int>(token) - 134 - static_cast<int>(rng.Integer(0, 12));
        rows.push_back(std::ldexp(rng.Uniform(1, 2), std::min(exponent, 127)) *
                       (rng.Uniform() < 0.5 ? -1 : 1));
      }
    }
    t.rows.Set(rows);
    rows = t.rows.Get();
    rows[70 * 512 + 69] = kNan;
    rows[71 * 512 + 4] = kInfinity;
    rows[72 * 512 + 447] = -kInfinity;
    std::fill_n(rows.begin() + 73 * 512, 256, -0.0);
    t.rows.Set(rows);
    t.slots.Set(slots);
    Run(t.Args());
    const std::vector<uint8_t> got = t.store.GetBytes();
    std::vector<uint8_t> want = got;
    TensorView store = t.store.view();
    store.data = want.data();
    for (int64_t token = 0; token < kTokens; ++token) {
      std::vector<float> row;
      for (int64_t i = 0; i < 512; ++i) {
        row.push_back(static_cast<float>(rows[static_cast<size_t>(token * 512 + i)]));
      }
      WriteLatentRow(row.data(), 512, store, token / 96, token % 96);
    }
    EXPECT_EQ(got, want);
  }
}

TEST_P(LatentAppendTest, PagesMayLieApart) {
  for (DType dtype : {DType::kF32, DType::kU8}) {
    Tensors t(device(), {4, 512, 6, 2, DType::kF32, dtype});
    LatentAppendArgs args = t.Args();
    args.store.dims[0] = 3;  // every second page
    args.store.strides[0] *= 2;
    t.slots.Set({1, 3, 5, 0});
    TestRows want = LatentStoreRows(t.store);
    for (int64_t i = 0; i < 4; ++i) {
      want[std::vector<size_t>{1, 5, 9, 0}[static_cast<size_t>(i)]] = AsStored(t.Row(i), dtype);
    }
    Run(args);
    EXPECT_EQ(LatentStoreRows(t.store), want);
  }
}

TEST_P(LatentAppendTest, RefusesWhatDoesNotFit) {
  Tensors t(device(), {3, 512, 2, 4, DType::kF32, DType::kU8});
  const auto message = [&](auto change) {
    LatentAppendArgs args = t.Args();
    change(args);
    return std::string(LatentAppend(ctx(), args).message());
  };
  EXPECT_EQ(message([](auto& a) { a.slots = a.slots.Rows(0, 2); }),
            "LatentAppend: slots.dim(0) = 2, want 3");
  EXPECT_EQ(message([](auto& a) { a.rows = a.rows.Cols(0, 64); }),
            "LatentAppend: store: FP8 rows have 512 channels");
  EXPECT_EQ(message([](auto& a) { a.store = a.store.Cols(0, 576); }),
            "LatentAppend: store.dim(3) = 576, want 584");
  EXPECT_EQ(message([](auto& a) { a.store.strides[2] += 8; }),
            "LatentAppend: store: rows of a page must have no gaps");
  EXPECT_EQ(message([](auto& a) { a.store.dtype = DType::kF16; }),
            "LatentAppend: store has dtype float16, want float32 or bfloat16 or uint8");
  EXPECT_EQ(message([](auto& a) { a.store.dtype = DType::kF32; }),
            "LatentAppend: store.dim(3) = 584, want 512");
}

// A store that begins one element behind where the allocation does: no row is aligned.
TEST_P(LatentAppendTest, StoresNeedNoAlignment) {
  for (DType from : {DType::kF32, DType::kBF16}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kU8}) {
      Tensors t(device(), {4, 512, 3, 2, from, dtype}),
          plain(device(), {4, 512, 3, 2, from, dtype});
      t.store.SetAll(1);
      plain.store.SetAll(1);
      LatentAppendArgs args = t.Args();
      args.store.data = args.store.as<uint8_t>() + DTypeBytes(dtype);
      for (Tensors* each : {&t, &plain}) each->slots.Set({1, -1, 3, 0});
      Run(args);
      Run(plain.Args());
      std::vector<uint8_t> want = plain.store.GetBytes();  // its last page has no new row
      std::rotate(want.begin(), want.end() - DTypeBytes(dtype), want.end());
      EXPECT_EQ(t.store.GetBytes(), want);
      EXPECT_TRUE(t.store.GuardsIntact());
    }
  }
}

TEST_P(LatentAppendTest, RefusesSlotsOutsideTheStoreAndWritesNothing) {
  if (device().type() != DeviceType::kCpu) return;  // see the next test
  Tensors t(device(), {3, 512, 2, 4});
  const std::vector<uint8_t> before = t.store.GetBytes();
  for (double slot : {8.0, -2.0}) {
    t.slots.Set({0, slot, 1});
    const absl::Status status = LatentAppend(ctx(), t.Args());
    EXPECT_EQ(status.message(), "LatentAppend: slots[1] = " +
                                    std::to_string(static_cast<int>(slot)) + ", want -1 to 7");
    EXPECT_EQ(t.store.GetBytes(), before);
  }
}

TEST_P(LatentAppendTest, OnTheGpuSlotsOutsideTheStoreCountAsNone) {
  if (device().type() == DeviceType::kCpu) return;
  for (double slot : {8.0, -2.0, 4294967296.0, -4294967296.0}) {
    Tensors t(device(), {3, 512, 2, 4}), same(device(), {3, 512, 2, 4});
    t.slots.Set({0, slot, 1});
    same.slots.Set({0, -1, 1});
    Run(t.Args());
    Run(same.Args());
    EXPECT_EQ(t.store.GetBytes(), same.store.GetBytes());
    EXPECT_TRUE(t.store.GuardsIntact());
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LatentAppendTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
