#include "tools/golden/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

double Difference(float want, float got) {
  const double d = std::abs(static_cast<double>(want) - static_cast<double>(got));
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

// Fills the two errors of the rows.
void CompareLogits(const GoldenCase& want, const std::vector<std::vector<float>>& got,
                   CaseReport& report) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  report.logit_error = report.logit_rms = kInfinity;
  if (got.size() != want.logits.size()) return;
  double worst = 0;
  double squares = 0;
  double count = 0;
  for (size_t row = 0; row < got.size(); ++row) {
    for (size_t i = 0; i < want.logits[row].size(); ++i) {
      const size_t id = want.ids.empty() ? i : static_cast<size_t>(want.ids[i]);
      if (id >= got[row].size()) return;
      const double d = Difference(want.logits[row][i], got[row][id]);
      worst = std::max(worst, d);
      squares += d * d;
      ++count;
    }
  }
  report.logit_error = worst;
  report.logit_rms = count > 0 ? std::sqrt(squares / count) : 0;
}

}  // namespace

bool CaseReport::passed(double tolerance) const {
  if (has_logits && !(logit_error <= tolerance)) return false;
  if (!(margin_error <= 2 * tolerance)) return false;
  return !parted() || parting_margin <= 2 * tolerance;
}

CaseReport Compare(const GoldenCase& want, const CaseOutput& got) {
  CaseReport report;
  report.has_logits = !got.logits.empty();
  if (report.has_logits) CompareLogits(want, got.logits, report);
  report.greedy_total = static_cast<int32_t>(want.greedy.size());
  for (size_t i = 0; i < want.greedy.size(); ++i) {
    const double margin = static_cast<double>(want.greedy_top2[i][0]) - want.greedy_top2[i][1];
    if (i < got.margins.size()) {
      report.margin_error =
          std::max(report.margin_error, Difference(static_cast<float>(margin), got.margins[i]));
    }
    if (i < got.tokens.size() && got.tokens[i] == want.greedy[i]) {
      ++report.greedy_agreed;
      continue;
    }
    report.parting_margin = margin;
    report.parting_want = want.greedy[i];
    report.parting_got = i < got.tokens.size() ? got.tokens[i] : -1;
    // A missing token is no near-tie.
    if (i >= got.tokens.size()) report.parting_margin = std::numeric_limits<double>::infinity();
    break;
  }
  return report;
}

}  // namespace millrace
