#include "tools/bench/report.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

RequestRecord Record(double ttft, double end, int64_t tokens) {
  RequestRecord r{.ttft = ttft, .end_to_end = end, .prompt_tokens = 10, .output_tokens = tokens};
  r.inter_token.assign(static_cast<size_t>(tokens - 1), (end - ttft) / (tokens - 1));
  return r;
}

TEST(Percentile, InterpolatesBetweenOrderStatistics) {
  EXPECT_EQ(Percentile({}, 50), 0);
  EXPECT_EQ(Percentile({3}, 99), 3);
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2}, 50), 2.5);
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2}, 100), 4);
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2}, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile({0, 10}, 90), 9);
}

TEST(Summarize, CountsOnlyWhatSucceeded) {
  LoadResult result{.seconds = 2};
  result.records = {Record(0.1, 1.1, 11), Record(0.3, 1.3, 11)};
  RequestRecord failed = Record(9, 9, 2);
  failed.status = absl::UnavailableError("gone");
  result.records.push_back(failed);
  const Summary s = Summarize({.concurrency = 4}, result);
  EXPECT_EQ(s.completed, 2);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.first_error, "UNAVAILABLE: gone");
  EXPECT_DOUBLE_EQ(s.requests_per_second, 1);
  EXPECT_DOUBLE_EQ(s.output_tokens_per_second, 11);
  EXPECT_DOUBLE_EQ(s.total_tokens_per_second, 21);
  EXPECT_DOUBLE_EQ(s.ttft.p50, 0.2);
  EXPECT_DOUBLE_EQ(s.tpot.p50, 0.1);
  EXPECT_DOUBLE_EQ(s.end_to_end.p50, 1.2);
}

TEST(Format, ShowsEveryPointAndItsFailures) {
  LoadResult result{.seconds = 1};
  result.records = {Record(0.1, 1.1, 11)};
  const Summary one = Summarize({.concurrency = 1}, result);
  result.records.push_back(Record(0.1, 1.1, 11));
  Summary two = Summarize({.concurrency = 2}, result);
  two.failed = 1;
  two.first_error = "UNAVAILABLE: x < y";
  const std::string table = FormatTable({one, two});
  EXPECT_NE(table.find("2.00x"), std::string::npos) << table;
  EXPECT_NE(table.find("first failure: UNAVAILABLE"), std::string::npos);
  const std::string csv = FormatCsv({one, two});
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  const std::string svg = FormatSvg({one, two}, "a < b & c");
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_NE(svg.find("TPOT p99"), std::string::npos);
}

}  // namespace
}  // namespace millrace
