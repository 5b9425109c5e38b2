// Compares what the engine computed for a golden case with the reference. Pure functions.
#ifndef TOOLS_GOLDEN_COMPARE_H_
#define TOOLS_GOLDEN_COMPARE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/golden/golden_file.h"

namespace millrace {

// What one run of a case gave.
struct CaseOutput {
  std::vector<std::vector<float>>
      logits;  // full rows at the case's positions; empty: not asked for
  std::vector<int32_t> tokens;
  std::vector<float> margins;  // best minus second best logit at each step
  int32_t cached_tokens = 0;   // of the prompt, by the prefix cache
};

struct CaseReport {
  bool has_logits = false;
  double logit_error = 0;  // largest absolute difference; infinite where one is not finite
  double logit_rms = 0;    // root of the mean square; what tells one rounding from another
  // Largest difference of the margins up to the parting: an error bound for steps without rows.
  double margin_error = 0;
  int32_t greedy_agreed = 0;  // leading tokens that are equal
  int32_t greedy_total = 0;
  // Where the continuations part: the reference's margin there, and the two tokens.
  double parting_margin = 0;
  int32_t parting_want = -1;
  int32_t parting_got = -1;

  bool parted() const { return greedy_agreed < greedy_total; }
  // Within `tolerance`: logits, margins (each the difference of two logits), and a parting only
  // where the reference's two best are closer than twice the tolerance.
  bool passed(double tolerance) const;
};

CaseReport Compare(const GoldenCase& want, const CaseOutput& got);

}  // namespace millrace

#endif  // TOOLS_GOLDEN_COMPARE_H_
