// The reading half of PythonJson.
#ifndef ENGINE_CHAT_DEEPSEEK_V4_PYTHON_JSON_READER_H_
#define ENGINE_CHAT_DEEPSEEK_V4_PYTHON_JSON_READER_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/chat/deepseek_v4/python_json.h"

namespace millrace::deepseek_v4 {

// repr(value), but infinities and NaN as the json module writes them.
std::string PythonFloat(double value);

// Reads one document, once.
class PythonJsonReader final {
 public:
  // `text` outlives the reader.
  explicit PythonJsonReader(std::string_view text) : text_(text) {}
  absl::StatusOr<PythonJson> Document();

 private:
  absl::Status Value(int depth, PythonJson* out);
  absl::Status Array(int depth, PythonJson* out);
  absl::Status Object(int depth, PythonJson* out);
  absl::Status Number(PythonJson* out);
  absl::Status String(std::string* out);
  absl::Status Escape(std::string* out);
  absl::StatusOr<char32_t> FourHexDigits();

  absl::Status Error(std::string_view what) const;
  void SkipBlanks();
  size_t SkipDigits();
  // Takes `word` if the text goes on with it.
  bool Take(std::string_view word);
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace millrace::deepseek_v4

#endif  // ENGINE_CHAT_DEEPSEEK_V4_PYTHON_JSON_READER_H_
