#include "kernels/cuda/dynamic_library.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(DynamicLibraryTest, FindsFunctionsAndNamesWhatIsMissing) {
  const auto math = DynamicLibrary::Load("libm.so.6", "");
  ASSERT_TRUE(math.ok()) << math.status();
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(math->Find("cos", &cosine).ok());
  EXPECT_EQ(cosine(0), 1);
  EXPECT_EQ(math->Find("no_such_function", &cosine).message(), "libm.so.6 has no no_such_function");

  const absl::Status missing = DynamicLibrary::Load("libno_such.so.1", "install it").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message().substr(0, 28), "cannot load libno_such.so.1:");
  EXPECT_NE(missing.message().find("; install it"), absl::string_view::npos);
}

}  // namespace
}  // namespace millrace
