#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/core/check.h"
#include "kernels/core/device.h"
#include "kernels/core/dtype.h"
#include "kernels/core/op_context.h"
#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/core/tensor_view.h"

namespace millrace {
namespace {

// A device that counts what it handed out.
class FakeDevice final : public Device {
 public:
  explicit FakeDevice(DeviceType type) : type_(type) {}
  DeviceType type() const override { return type_; }
  absl::StatusOr<DeviceProperties> Properties() const override { return DeviceProperties{}; }
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override {
    ++live;
    return Buffer(this, memory, bytes);
  }
  absl::StatusOr<Stream> CreateStream() override { return Stream{}; }
  void DestroyStream(Stream) override {}
  absl::Status Copy(void*, const void*, int64_t, CopyKind, Stream) override {
    return absl::OkStatus();
  }
  absl::Status Synchronize(Stream) override { return absl::OkStatus(); }

  int live = 0;
  char memory[8] = {};

 private:
  void Free(void*, MemoryKind) override { --live; }
  DeviceType type_;
};

TEST(DTypeTest, SizesAndNames) {
  EXPECT_EQ(DTypeBytes(DType::kF32), 4);
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2);
  EXPECT_EQ(DTypeBytes(DType::kI64), 8);
  EXPECT_EQ(DTypeBytes(DType::kU8), 1);
  EXPECT_EQ(DTypeName(DType::kBF16), "bfloat16");
}

TEST(BFloat16Test, RoundsToNearestEven) {
  EXPECT_EQ(ToBFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(ToBFloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie: to even
  EXPECT_EQ(ToBFloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(ToBFloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(ToBFloat16(-0.0f).bits, 0x8000);
}

TEST(BFloat16Test, KeepsSpecials) {
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);  // overflows
  EXPECT_EQ(ToBFloat16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::bit_cast<float>(0xffffffffu)))));
}

TEST(BFloat16Test, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float f = ToFloat({static_cast<uint16_t>(bits)});
    if (std::isnan(f)) continue;
    EXPECT_EQ(ToBFloat16(f).bits, bits);
  }
}

TEST(TensorViewTest, DescribesAContiguousTensor) {
  float data[24];
  const TensorView v = TensorView::Of(data, DType::kF32, {2, 3, 4});
  EXPECT_EQ(v.rank, 3);
  EXPECT_EQ(v.size(), 24);
  EXPECT_EQ(v.stride(0), 12);
  EXPECT_EQ(v.stride(2), 1);
  EXPECT_TRUE(v.contiguous());
  EXPECT_EQ(v.ToString(), "float32[2, 3, 4] on cpu");
  EXPECT_EQ(TensorView{}.size(), 1);
  EXPECT_TRUE(TensorView::Of(data, DType::kF32, {3, 0}).empty());
}

TEST(TensorViewTest, RowsAndColsKeepStrides) {
  float data[12];
  const TensorView v = TensorView::Of(data, DType::kF32, {3, 4});
  const TensorView rows = v.Rows(1, 3);
  EXPECT_EQ(rows.data, data + 4);
  EXPECT_EQ(rows.dim(0), 2);
  EXPECT_TRUE(rows.contiguous());
  const TensorView cols = v.Cols(1, 3);
  EXPECT_EQ(cols.data, data + 1);
  EXPECT_EQ(cols.dim(1), 2);
  EXPECT_EQ(cols.stride(0), 4);
  EXPECT_FALSE(cols.contiguous());
  EXPECT_TRUE(cols.Rows(0, 1).contiguous());  // one row has no gaps
}

TEST(TensorViewDeathTest, RefusesRangesOutside) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  float data[12];
  const TensorView v = TensorView::Of(data, DType::kF32, {3, 4});
  EXPECT_DEATH(v.Rows(2, 4), "CHECK failed");
  EXPECT_DEATH(v.Cols(3, 2), "CHECK failed");
}

TEST(BufferTest, FreesOnceThroughMoves) {
  FakeDevice device(DeviceType::kCpu);
  {
    Buffer a = std::move(device.Allocate(8)).value();
    Buffer b = std::move(a);
    Buffer c;
    c = std::move(b);
    EXPECT_EQ(device.live, 1);
    EXPECT_EQ(c.bytes(), 8);
  }
  EXPECT_EQ(device.live, 0);
}

TEST(WorkspaceTest, ScopesNestAndGiveBack) {
  alignas(256) char memory[1024];
  Workspace workspace(memory, sizeof(memory));
  {
    WorkspaceScope outer(workspace);
    EXPECT_EQ(outer.Take(1).value(), memory);
    {
      WorkspaceScope inner(workspace);
      EXPECT_EQ(inner.Take(257).value(), memory + 256);
    }
    WorkspaceScope again(workspace);
    EXPECT_EQ(again.Take(768).value(), memory + 256);
    const absl::Status status = again.Take(1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(status.message(), "Workspace: an op asks for 1 bytes, 0 of 1024 are left");
    EXPECT_FALSE(again.Take(-1).ok());
  }
  EXPECT_EQ(workspace.peak(), 1024);
  WorkspaceScope scope(workspace);
  EXPECT_TRUE(scope.Take(1024).ok());
}

TEST(ShapeCheckerTest, BindsSizesAndNamesTheFirstError) {
  float data[64];
  int64_t tokens = kUnbound, width = kUnbound;
  const TensorView x = TensorView::Of(data, DType::kF32, {2, 8});
  ShapeChecker good("Op", DeviceType::kCpu);
  good.Bind("x", x, {&tokens, &width}, {DType::kF32});
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(tokens, 2);
  EXPECT_EQ(width, 8);
  good.Bind("w", TensorView::Of(data, DType::kF32, {7}), {&width}, {DType::kF32})
      .Require(false, "later");
  EXPECT_EQ(good.status().message(), "Op: w.dim(0) = 7, want 8");
}

TEST(ShapeCheckerTest, EachRefusal) {
  float data[64];
  const auto refusal = [&](TensorView t) {
    int64_t a = kUnbound, b = kUnbound;
    return std::string(ShapeChecker("Op", DeviceType::kCpu)
                           .Bind("x", t, {&a, &b}, {DType::kF32, DType::kBF16})
                           .status()
                           .message());
  };
  const TensorView x = TensorView::Of(data, DType::kF32, {2, 8});
  EXPECT_EQ(refusal(x), "");
  EXPECT_EQ(refusal(TensorView::Of(data, DType::kF32, {8})), "Op: x has rank 1, want 2");
  EXPECT_EQ(refusal(TensorView::Of(data, DType::kI32, {2, 8})),
            "Op: x has dtype int32, want float32 or bfloat16");
  EXPECT_EQ(refusal(TensorView::Of(data, DType::kF32, {2, 8}, DeviceType::kCuda)),
            "Op: x is float32[2, 8] on cuda, on another device");
  EXPECT_EQ(refusal(TensorView::Of(nullptr, DType::kF32, {2, 8})), "Op: x has no data");
  EXPECT_EQ(refusal(TensorView::Of(nullptr, DType::kF32, {0, 8})), "");
  TensorView strided = x;
  strided.strides[1] = 2;
  EXPECT_EQ(refusal(strided), "Op: x has innermost stride 2, want 1");
}

struct NoArgs {};
absl::Status Succeed(const OpContext&, const NoArgs&) { return absl::OkStatus(); }

TEST(OpTableTest, CallsTheRowOrNamesOpAndDevice) {
  FakeDevice cpu(DeviceType::kCpu), cuda(DeviceType::kCuda);
  Workspace workspace;
  const OpTable<NoArgs> table = {.op = "Op", .cpu = Succeed, .cuda = nullptr};
  EXPECT_TRUE(RunOnDevice(table, {cpu, Stream{}, workspace}, NoArgs{}).ok());
  const absl::Status status = RunOnDevice(table, {cuda, Stream{}, workspace}, NoArgs{});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "Op: no kernel for cuda in this build");
}

absl::StatusOr<int> Half(int x) {
  if (x % 2 != 0) return absl::InvalidArgumentError("odd");
  return x / 2;
}
absl::StatusOr<int> Quarter(int x) {
  ASSIGN_OR_RETURN(const int half, Half(x));
  RETURN_IF_ERROR(Half(half).status());
  return half / 2;
}

TEST(StatusMacrosTest, ReturnEarly) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(3).status().message(), "odd");
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

TEST(CheckDeathTest, PrintsTheCondition) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(MR_CHECK_EQ(1, 2), "core_test.cc:[0-9]+: \\(1\\) == \\(2\\)");
}

}  // namespace
}  // namespace millrace
