#include "kernels/cpu/memory_info.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A machine of files: 8 GiB, half of it free.
class MemoryInfoTest : public ::testing::Test {
 protected:
  MemoryInfoTest() : root_(fs::path(::testing::TempDir()) / "machine") {
    fs::remove_all(root_);
    Write("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n");
  }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  MemoryInfo Read() {
    const auto info = ReadMemoryInfo(root_.string());
    EXPECT_TRUE(info.ok()) << info.status();
    return info.value_or(MemoryInfo{});
  }

  fs::path root_;
};

constexpr int64_t kGiB = int64_t{1} << 30;

TEST_F(MemoryInfoTest, WithoutGroupsIsTheMachines) {
  EXPECT_EQ(Read().total_bytes, 8 * kGiB);
  EXPECT_EQ(Read().free_bytes, 4 * kGiB);
}

TEST_F(MemoryInfoTest, GroupVersion2LimitsAtEveryLevel) {
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(Read().total_bytes, 8 * kGiB);
  Write("sys/fs/cgroup/a/memory.max", "3221225472\n");
  Write("sys/fs/cgroup/a/memory.current", "2147483648\n");
  EXPECT_EQ(Read().total_bytes, 3 * kGiB);
  EXPECT_EQ(Read().free_bytes, 1 * kGiB);
  Write("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 1073741824\n");  // reclaimable
  EXPECT_EQ(Read().free_bytes, 2 * kGiB);
}

TEST_F(MemoryInfoTest, GroupOfAContainerIsMountedAtTheTop) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "1073741824\n");
  Write("sys/fs/cgroup/memory.current", "2147483648\n");  // over its limit: nothing is free
  EXPECT_EQ(Read().total_bytes, 1 * kGiB);
  EXPECT_EQ(Read().free_bytes, 0);
}

TEST_F(MemoryInfoTest, GroupVersion1) {
  Write("proc/self/cgroup", "3:cpu:/x\n9:memory:/job\nnonsense\n");
  Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648\n");
  Write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1073741824\n");
  EXPECT_EQ(Read().total_bytes, 2 * kGiB);
  EXPECT_EQ(Read().free_bytes, 1 * kGiB);
  Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(Read().total_bytes, 8 * kGiB);
}

TEST_F(MemoryInfoTest, SaysWhichFileIsBad) {
  Write("proc/meminfo", "MemTotal: many\n");
  const absl::Status status = ReadMemoryInfo(root_.string()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("proc/meminfo has no MemTotal"), absl::string_view::npos);
  fs::remove_all(root_);
  EXPECT_NE(ReadMemoryInfo(root_.string()).status().message().find("cannot read"),
            absl::string_view::npos);
}

TEST(ThisMachineTest, HasMemory) {
  const auto info = ReadMemoryInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_GT(info->free_bytes, 0);
  EXPECT_GE(info->total_bytes, info->free_bytes);
}

}  // namespace
}  // namespace millrace
