#include "engine/layers/cache_scales.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"

namespace millrace {
namespace {

struct Stored {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// Scales and nothing else.
class Scales final : public WeightSource {
 public:
  explicit Scales(std::map<std::string, Stored> tensors) : tensors_(std::move(tensors)) {}

  absl::StatusOr<TensorInfo> Find(std::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    if (found == tensors_.end()) return absl::NotFoundError(std::string(name));
    return TensorInfo{.name = found->first, .shape = found->second.shape};
  }
  absl::Status Read(std::string_view name, absl::Span<const Range> ranges, DType want,
                    void* dst) const override {
    EXPECT_EQ(want, DType::kF32);
    const std::vector<float>& values = tensors_.at(std::string(name)).values;
    EXPECT_EQ(ranges.size(), tensors_.at(std::string(name)).shape.size());
    for (size_t i = 1; i < ranges.size(); ++i) EXPECT_EQ(ranges[i].size(), 1);
    const Range range = ranges.empty() ? Range{0, 1} : ranges[0];
    std::copy(values.begin() + range.begin, values.begin() + range.end, static_cast<float*>(dst));
    return absl::OkStatus();
  }
  absl::Status ReadRaw(std::string_view, absl::Span<const Range>, void*) const override {
    return absl::UnimplementedError("");
  }
  std::string Where(std::string_view) const override { return "test"; }
  std::vector<std::string> Names() const override { return {}; }
  absl::StatusOr<std::string> Fingerprint() const override { return std::string(); }

 private:
  std::map<std::string, Stored> tensors_;
};

class CacheScalesTest : public testing::Test {
 protected:
  // Of heads 1 and 2 of four.
  absl::StatusOr<CacheScales> Load(const std::map<std::string, Stored>& tensors) {
    const Scales source(tensors);
    WeightLoader recorder(source);
    LoadContext recording{recorder};
    EXPECT_TRUE(LoadCacheScales("a", {1, 3}, 4, recording).ok() == shapes_fit_);
    for (const TensorSpec& spec : recorder.tensors()) wanted_.push_back(spec.name);
    WeightLoader loader(source, *device_, 0, {});
    LoadContext loading{loader};
    return LoadCacheScales("a", {1, 3}, 4, loading);
  }
  static std::vector<float> Values(const Weight& weight) {
    const float* values = weight.view.as<float>();
    return std::vector<float>(values, values + weight.view.size());
  }
  void ExpectRefused(const std::map<std::string, Stored>& tensors, const std::string& message) {
    const absl::Status status = Load(tensors).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(message), std::string::npos) << status;
  }

  bool shapes_fit_ = true;
  std::unique_ptr<CpuDevice> device_ = *CpuDevice::Create(1);
  std::vector<std::string> wanted_;
};

TEST_F(CacheScalesTest, OneWhereTheCheckpointHasNone) {
  const absl::StatusOr<CacheScales> scales = Load({});
  ASSERT_TRUE(scales.ok()) << scales.status();
  EXPECT_EQ(Values(scales->k), (std::vector<float>{1, 1}));
  EXPECT_EQ(Values(scales->v), (std::vector<float>{1, 1}));
  EXPECT_TRUE(wanted_.empty());
}

TEST_F(CacheScalesTest, OneForAllHeadsOrOneEach) {
  const absl::StatusOr<CacheScales> scales =
      Load({{"a.k_proj.k_scale", {{}, {0.5f}}}, {"a.v_scale", {{4}, {1, 2, 3, 4}}}});
  ASSERT_TRUE(scales.ok()) << scales.status();
  EXPECT_EQ(Values(scales->k), (std::vector<float>{0.5f, 0.5f}));
  EXPECT_EQ(Values(scales->v), (std::vector<float>{2, 3}));
  EXPECT_EQ(wanted_, (std::vector<std::string>{"a.k_proj.k_scale", "a.v_scale"}));
}

TEST_F(CacheScalesTest, AVectorOfOneIsForAll) {
  const absl::StatusOr<CacheScales> scales = Load({{"a.k_scale", {{1}, {3}}}});
  ASSERT_TRUE(scales.ok()) << scales.status();
  EXPECT_EQ(Values(scales->k), (std::vector<float>{3, 3}));
}

// compressed-tensors: [kv heads, 1, 1] and [1, 1, 1], by the names of older exports too.
TEST_F(CacheScalesTest, DimensionsOfOneBehind) {
  const absl::StatusOr<CacheScales> scales =
      Load({{"a.k_proj.output_scale", {{1, 1, 1}, {3}}}, {"a.v_scale", {{4, 1, 1}, {1, 2, 3, 4}}}});
  ASSERT_TRUE(scales.ok()) << scales.status();
  EXPECT_EQ(Values(scales->k), (std::vector<float>{3, 3}));
  EXPECT_EQ(Values(scales->v), (std::vector<float>{2, 3}));
}

TEST_F(CacheScalesTest, RefusesWhatCannotBe) {
  ExpectRefused({{"a.k_scale", {{}, {0}}}}, "a.k_scale has a scale of 0");
  ExpectRefused({{"a.v_scale", {{4}, {1, 1, -2, 1}}}}, "a.v_scale has a scale of -2");
  ExpectRefused({{"a.k_scale", {{}, {std::nanf("")}}}}, "a.k_scale has a scale of nan");
  shapes_fit_ = false;
  ExpectRefused({{"a.k_scale", {{3}, {1, 1, 1}}}},
                "a.k_scale has shape [3], want one scale or one for each of 4 kv heads");
  ExpectRefused({{"a.k_scale", {{4, 2}, {}}}}, "[4, 2]");
}

TEST_F(CacheScalesTest, KnowsThem) {
  EXPECT_TRUE(IsCacheScale("model.layers.0.self_attn.k_proj.k_scale"));
  EXPECT_TRUE(IsCacheScale("model.layers.0.self_attn.v_scale"));
  EXPECT_TRUE(IsCacheScale("model.layers.0.self_attn.v_proj.output_scale"));
  EXPECT_FALSE(IsCacheScale("model.layers.0.self_attn.q_proj.output_scale"));
  EXPECT_FALSE(IsCacheScale("model.layers.0.self_attn.k_proj.weight_scale"));
}

}  // namespace
}  // namespace millrace
