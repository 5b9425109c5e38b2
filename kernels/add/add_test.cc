#include "kernels/add/add.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/add/add_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

class AddTest : public OpTest {};

TEST_P(AddTest, SumsAllTypesAndShapes) {
  for (const AddCase& c : kAddCases) {
    for (int types = 0; types < 8; ++types) {
      SCOPED_TRACE(testing::Message() << c.tokens << "x" << c.width << " types " << types);
      const auto dtype = [types](int bit) {
        return (types >> bit) % 2 == 1 ? DType::kBF16 : DType::kF32;
      };
      TestRng rng(static_cast<uint64_t>(c.tokens * 31 + c.width));
      const std::vector<int64_t> shape = {c.tokens, c.width};
      GuardedTensor a(device(), dtype(0), shape, c.row_padding);
      GuardedTensor b(device(), dtype(1), shape, 2 * c.row_padding);
      GuardedTensor y(device(), dtype(2), shape, c.row_padding);
      a.SetNormal(rng);
      b.SetNormal(rng, 3);
      ASSERT_TRUE(Add(ctx(), {.a = a.view(), .b = b.view(), .y = y.view()}).ok());
      ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
      std::vector<double> want = a.Get();
      const std::vector<double> more = b.Get();
      for (size_t i = 0; i < want.size(); ++i) want[i] += more[i];
      const double rounding = y.view().dtype == DType::kBF16 ? 1.0 / 256 : 1e-7;
      EXPECT_TRUE(AllClose(y.Get(), want, {0, rounding}));
      EXPECT_TRUE(a.GuardsIntact() && b.GuardsIntact() && y.GuardsIntact());
    }
  }
}

TEST_P(AddTest, InPlaceAndTwiceAlike) {
  TestRng rng(5);
  GuardedTensor a(device(), DType::kF32, {9, 137}, 3);
  GuardedTensor b(device(), DType::kF32, {9, 137});
  GuardedTensor y(device(), DType::kF32, {9, 137});
  a.SetNormal(rng);
  b.SetNormal(rng);
  ASSERT_TRUE(Add(ctx(), {.a = a.view(), .b = b.view(), .y = y.view()}).ok());
  ASSERT_TRUE(Add(ctx(), {.a = a.view(), .b = b.view(), .y = b.view()}).ok());
  ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  EXPECT_EQ(b.GetBytes(), y.GetBytes());
}

TEST_P(AddTest, RefusesWhatDoesNotFit) {
  GuardedTensor a(device(), DType::kF32, {2, 3});
  GuardedTensor ids(device(), DType::kI32, {2, 3});
  EXPECT_EQ(Add(ctx(), {.a = a.view(), .b = a.view().Rows(0, 1), .y = a.view()}).message(),
            "Add: b.dim(0) = 1, want 2");
  EXPECT_EQ(Add(ctx(), {.a = a.view(), .b = a.view(), .y = a.view().Cols(0, 2)}).message(),
            "Add: y.dim(1) = 2, want 3");
  const std::string message(Add(ctx(), {.a = a.view(), .b = ids.view(), .y = a.view()}).message());
  EXPECT_NE(message.find("b has dtype int32"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Devices, AddTest, ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)),
                         DeviceName);

}  // namespace
}  // namespace millrace
