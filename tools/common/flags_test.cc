#include "tools/common/flags.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "gtest/gtest.h"

ABSL_FLAG(int, max_model_len, 7, "");
ABSL_FLAG(int, tensor_parallel_size, 1, "");
ABSL_FLAG(bool, enable_prefix_caching, true, "");
ABSL_FLAG(std::string, cluster_secret_file, "", "");
ABSL_FLAG(bool, no_op, false, "");

namespace millrace {
namespace {

const FlagAliases kAliases = {{"tp", "tensor_parallel_size"}, {"radix", "enable_prefix_caching"}};

TEST(Flags, Normalize) {
  const std::pair<const char*, const char*> cases[] = {
      {"--max-model-len=5", "--max_model_len=5"},
      {"--max_model_len", "--max_model_len"},
      {"-max-model-len", "--max_model_len"},
      {"--tp=2", "--tensor_parallel_size=2"},
      {"-tp", "--tensor_parallel_size"},
      {"--no-enable-prefix-caching", "--noenable_prefix_caching"},
      {"--noenable_prefix_caching", "--noenable_prefix_caching"},
      {"--no-radix", "--noenable_prefix_caching"},
      {"--no-op", "--no_op"},
      {"--no-such-flag", "--no_such_flag"},
      {"--x=a-b=c-d", "--x=a-b=c-d"},
      {"a-b", "a-b"},
      {"-", "-"},
      {"--", "--"},
      {"-5", "-5"},
      {"-1.5e-3", "-1.5e-3"},
      {"", ""},
  };
  for (const auto& [in, out] : cases) EXPECT_EQ(NormalizeFlag(in, kAliases), out) << in;
}

TEST(Flags, ParseSetsFlagsAndKeepsTheRest) {
  std::vector<std::string> words = {"tool",
                                    "--max-model-len=-3",
                                    "first",
                                    "-tp",
                                    "4",
                                    "--no-enable-prefix-caching",
                                    "--cluster-secret-file=/s",
                                    "--",
                                    "--left-alone"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const std::vector<std::string> rest =
      ParseFlags(static_cast<int>(argv.size()), argv.data(), kAliases);
  EXPECT_EQ(rest, (std::vector<std::string>{"first", "--left-alone"}));
  EXPECT_EQ(absl::GetFlag(FLAGS_max_model_len), -3);
  EXPECT_EQ(absl::GetFlag(FLAGS_tensor_parallel_size), 4);
  EXPECT_FALSE(absl::GetFlag(FLAGS_enable_prefix_caching));
  EXPECT_EQ(NonDefaultFlags(),
            (std::vector<std::string>{"cluster_secret_file=***", "enable_prefix_caching=false",
                                      "max_model_len=-3", "tensor_parallel_size=4"}));
}

TEST(Flags, PathsAreTakenFromWhereTheUserStands) {
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(PathFromUser("a/b"), "a/b");
  setenv("BUILD_WORKING_DIRECTORY", "/home/me", 1);
  EXPECT_EQ(PathFromUser("a/b"), "/home/me/a/b");
  EXPECT_EQ(PathFromUser("../b"), "/home/b");
  EXPECT_EQ(PathFromUser("/a/b"), "/a/b");
  EXPECT_EQ(PathFromUser(""), "");
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
