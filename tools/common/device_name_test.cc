#include "tools/common/device_name.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(ParseDevice, TakesThreeSpellings) {
  EXPECT_EQ(ParseDevice("cpu")->type, DeviceType::kCpu);
  EXPECT_EQ(ParseDevice("cuda")->type, DeviceType::kCuda);
  EXPECT_EQ(ParseDevice("cuda")->ordinal, 0);
  EXPECT_EQ(ParseDevice("cuda:7")->type, DeviceType::kCuda);
  EXPECT_EQ(ParseDevice("cuda:7")->ordinal, 7);
}

TEST(ParseDevice, RefusesTheRest) {
  for (const char* text : {"", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:x", "cuda:1024", "cpu:0"}) {
    const auto device = ParseDevice(text);
    EXPECT_FALSE(device.ok()) << text;
    EXPECT_NE(device.status().message().find("want cpu, cuda or cuda:N"), std::string::npos);
  }
}

}  // namespace
}  // namespace millrace
