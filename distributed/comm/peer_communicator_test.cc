#include "distributed/comm/peer_communicator.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(FusedLimitTest, IsTheLastSizeBeforeTheFirstThatIsNotFaster) {
  EXPECT_EQ(FusedLimit({}), 0);
  EXPECT_EQ(FusedLimit({{8192, 10, 9}, {16384, 1, 9}}), 0);
  EXPECT_EQ(FusedLimit({{8192, 4, 9}, {16384, 9, 9}}), 8192);
  EXPECT_EQ(FusedLimit({{8192, 4, 9}, {16384, 12, 9}, {32768, 5, 9}}), 8192);
  EXPECT_EQ(FusedLimit({{8192, 4, 9}, {16384, 5, 9}}), 16384);
}

}  // namespace
}  // namespace millrace
