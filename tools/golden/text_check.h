// Checks the text of golden cases: the chat as rendered, its ids, and the answer.
#ifndef TOOLS_GOLDEN_TEXT_CHECK_H_
#define TOOLS_GOLDEN_TEXT_CHECK_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/chat/chat_template.h"
#include "engine/tokenizer/tokenizer.h"
#include "tools/golden/golden_file.h"

namespace millrace {

struct TextReport {
  int checked = 0;                    // texts, id lists and answers compared
  std::vector<std::string> mistakes;  // one line each
};

class TextChecker final {
 public:
  // Reads the folder's tokenizer and chat template. Empty when it has no tokenizer.json; errors
  // when that cannot be read.
  static absl::StatusOr<std::optional<TextChecker>> Load(const std::string& model_dir);

  // What the cases say in `messages`, `text`, `prompt`, `greedy` and `answer`, where present.
  TextReport Check(const std::vector<GoldenCase>& cases) const;

 private:
  TextChecker() = default;
  void CheckCase(const GoldenCase& c, const std::string& where, TextReport& report) const;

  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
};

}  // namespace millrace

#endif  // TOOLS_GOLDEN_TEXT_CHECK_H_
