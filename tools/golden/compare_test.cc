#include "tools/golden/compare.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tools/golden/report.h"

namespace millrace {
namespace {

GoldenCase Want() {
  GoldenCase c;
  c.prompt = {1, 2, 3};
  c.positions = {0, 2};
  c.logits = {{1, 2, 3}, {4, 5, 6}};
  c.greedy = {7, 8, 9};
  c.greedy_top2 = {{5, 4}, {5, 4.999f}, {3, 1}};
  return c;
}

CaseOutput Perfect() {
  CaseOutput got;
  got.logits = {{1, 2, 3}, {4, 5, 6}};
  got.tokens = {7, 8, 9};
  got.margins = {1, 0.001f, 2};
  return got;
}

TEST(CompareTest, PerfectOutputPasses) {
  const CaseReport r = Compare(Want(), Perfect());
  EXPECT_EQ(r.logit_error, 0);
  EXPECT_LT(r.margin_error, 1e-6);
  EXPECT_EQ(r.greedy_agreed, 3);
  EXPECT_FALSE(r.parted());
  EXPECT_TRUE(r.passed(1e-6));
}

TEST(CompareTest, TheLargestErrorCounts) {
  CaseOutput got = Perfect();
  got.logits[1][0] = 4.25f;
  got.logits[0][2] = 2.875f;
  const CaseReport r = Compare(Want(), got);
  EXPECT_EQ(r.logit_error, 0.25);
  EXPECT_NEAR(r.logit_rms, std::sqrt((0.25 * 0.25 + 0.125 * 0.125) / 6), 1e-9);
  EXPECT_TRUE(r.passed(0.25));
  EXPECT_FALSE(r.passed(0.2));
}

TEST(CompareTest, WhatIsNotFiniteNeverPasses) {
  CaseOutput got = Perfect();
  got.logits[0][0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Compare(Want(), got).passed(1e9));
  got = Perfect();
  got.margins[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Compare(Want(), got).passed(1e9));
}

TEST(CompareTest, MissingAndShortRowsNeverPass) {
  CaseOutput got = Perfect();
  got.logits.pop_back();
  EXPECT_FALSE(Compare(Want(), got).passed(1e9));
  got = Perfect();
  got.logits[1].pop_back();
  EXPECT_FALSE(Compare(Want(), got).passed(1e9));
}

TEST(CompareTest, RowsOfSomeIdsPickTheirEntries) {
  GoldenCase want = Want();
  want.ids = {2, 0, 1};
  CaseOutput got = Perfect();
  got.logits = {{2, 3, 1}, {5, 6, 4}};
  EXPECT_EQ(Compare(want, got).logit_error, 0);
}

TEST(CompareTest, APartingCountsWhereTheMarginIsWide) {
  CaseOutput got = Perfect();
  got.tokens = {7, 3, 1};
  CaseReport r = Compare(Want(), got);
  EXPECT_EQ(r.greedy_agreed, 1);
  EXPECT_EQ(r.parting_want, 8);
  EXPECT_EQ(r.parting_got, 3);
  EXPECT_TRUE(r.passed(1e-3));  // the two best were 1e-3 apart
  EXPECT_FALSE(r.passed(4e-4));
  got.tokens = {7, 8, 3};
  EXPECT_FALSE(Compare(Want(), got).passed(1e-3));
}

TEST(CompareTest, MarginsPastThePartingDoNotCount) {
  CaseOutput got = Perfect();
  got.tokens = {7, 3, 1};
  got.margins[2] = 100;
  EXPECT_TRUE(Compare(Want(), got).passed(1e-3));
}

TEST(CompareTest, TooFewTokensNeverPass) {
  CaseOutput got = Perfect();
  got.tokens.pop_back();
  got.margins.pop_back();
  EXPECT_FALSE(Compare(Want(), got).passed(1e9));
}

TEST(ReportTest, TheVerdictNamesTheWorstOfBoth) {
  CaseOutput off = Perfect();
  off.logits[0][0] += 0.5f;
  CaseOutput parted = Perfect();
  parted.tokens = {7, 3, 1};
  const PassReport first = {
      "first", {off, parted}, {Compare(Want(), off), Compare(Want(), parted)}};
  const Verdict verdict = Judge({first}, 1);
  EXPECT_TRUE(verdict.passed);
  EXPECT_EQ(verdict.line, "worst: logit error 5.00e-01 (tolerance 1.0e+00), greedy 1/3: passed");
  EXPECT_FALSE(Judge({first}, 0.1).passed);
  const std::string table = FormatPass(first, {Want(), Want()}, 1);
  EXPECT_NE(table.find("parts at token 1: 3, want 8, margin 1.00e-03 (a near-tie)"),
            std::string::npos)
      << table;
}

}  // namespace
}  // namespace millrace
