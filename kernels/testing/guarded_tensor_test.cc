#include "kernels/testing/guarded_tensor.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class GuardedTensorTest : public OpTest {};
INSTANTIATE_TEST_SUITE_P(Devices, GuardedTensorTest, ::testing::ValuesIn(DevicesUnderTest()),
                         DeviceName);

TEST_P(GuardedTensorTest, RoundTripsEachDType) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI32, DType::kI64, DType::kU8}) {
    GuardedTensor t(device(), dtype, {2, 3}, 1);
    t.Set({0, 1, 2, 3, 4, 5});
    EXPECT_EQ(t.Get(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(t.view().stride(0), 4);
    EXPECT_TRUE(t.GuardsIntact());
    EXPECT_EQ(t.GetBytes().size(), static_cast<size_t>(6 * DTypeBytes(dtype)));
  }
}

TEST_P(GuardedTensorTest, StartsAsNaN) {
  GuardedTensor t(device(), DType::kBF16, {1, 2});
  EXPECT_TRUE(std::isnan(t.Get()[0]));
}

TEST_P(GuardedTensorTest, NoticesWritesPastTheRows) {
  for (int64_t at : {-1, 3, 6, 7}) {  // before, in the padding twice, after
    GuardedTensor t(device(), DType::kF32, {2, 3}, 1);
    t.SetAll(1);
    const float value = 5;
    ASSERT_TRUE(device()
                    .Copy(t.view().as<float>() + at, &value, 4, CopyKind::kHostToDevice, Stream{})
                    .ok());
    EXPECT_EQ(static_cast<bool>(t.GuardsIntact()), at == 6) << at;
  }
}

TEST(AllCloseTest, JudgesBySpecialsThenByError) {
  EXPECT_TRUE(AllClose({1, kNaN, kInf}, {1.01, kNaN, kInf}, {.absolute = 0.02}));
  EXPECT_TRUE(AllClose({100}, {101}, {.relative = 0.01}));
  EXPECT_FALSE(AllClose({100}, {101}, {.relative = 0.009}));
  EXPECT_FALSE(AllClose({1}, {kNaN}, {.absolute = 10}));
  EXPECT_FALSE(AllClose({kNaN}, {1}, {.absolute = 10}));
  EXPECT_FALSE(AllClose({-kInf}, {kInf}, {.absolute = 10}));
  EXPECT_FALSE(AllClose({1}, {1, 2}, {.absolute = 10}));
  const auto result = AllClose({1, 2, 3}, {1, 5, 4}, {.absolute = 0.5});
  EXPECT_NE(std::string(result.message()).find("2 of 3 elements"), std::string::npos);
  EXPECT_NE(std::string(result.message()).find("element 1 is 2, want 5"), std::string::npos);
}

TEST(TestRngTest, IsTheSameEverywhere) {
  TestRng rng(1);
  EXPECT_EQ(rng.Next(), 0x910a2dec89025cc1u);
  for (int i = 0; i < 1000; ++i) {
    const int64_t k = rng.Integer(-2, 3);
    EXPECT_TRUE(-2 <= k && k <= 3);
  }
}

}  // namespace
}  // namespace millrace
