// Reads golden.json: reference outputs of a checkpoint, a list of cases.
#ifndef TOOLS_GOLDEN_GOLDEN_FILE_H_
#define TOOLS_GOLDEN_GOLDEN_FILE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace {

struct GoldenCase {
  std::vector<int32_t> prompt;
  std::vector<int32_t> positions;                 // of the prompt, ascending
  std::vector<int32_t> ids;                       // vocabulary entries of a logits row; empty: all
  std::vector<std::vector<float>> logits;         // one row per position
  std::vector<int32_t> greedy;                    // continuation
  std::vector<std::array<float, 2>> greedy_top2;  // best two logits at each step of it
  std::vector<std::pair<std::string, std::string>> messages;  // role, content; may be empty
  std::optional<std::string> text;                            // the messages as rendered
  std::optional<std::string> answer;                          // `greedy` as text
};

// `where` names the text in messages. InvalidArgument naming case, field and what is wrong.
absl::StatusOr<std::vector<GoldenCase>> ParseGolden(const std::string& json,
                                                    const std::string& where);

// NotFound, or as above.
absl::StatusOr<std::vector<GoldenCase>> ReadGolden(const std::string& path);

}  // namespace millrace

#endif  // TOOLS_GOLDEN_GOLDEN_FILE_H_
