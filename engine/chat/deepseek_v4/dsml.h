// DSML, the markup in which the model calls tools: parameters by name, text as it is, everything
// else as JSON. Nothing is escaped.
#ifndef ENGINE_CHAT_DEEPSEEK_V4_DSML_H_
#define ENGINE_CHAT_DEEPSEEK_V4_DSML_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace millrace::deepseek_v4 {

struct DsmlParameter {
  std::string name;
  std::string value;
  bool is_text = false;  // otherwise `value` is JSON
};

// The members of `arguments`, a JSON object as text. What is no JSON at all becomes one text
// parameter called "arguments". InvalidArgument for JSON that is no object.
absl::StatusOr<std::vector<DsmlParameter>> ParametersOf(const std::string& arguments);

// The way back. Values that are no texts are put in as they are, JSON or not.
std::string ArgumentsOf(absl::Span<const DsmlParameter> parameters);

// Of the model's own text: what stands between a tag's name and the next tag. None when it is not
// of the one form that is allowed there.
std::optional<std::string> ReadInvokeName(std::string_view text);  //  name="...">\n
// `text` ends before the closing tag's slash.
std::optional<DsmlParameter> ReadParameter(std::string_view text);  //  name="" string="">...<

}  // namespace millrace::deepseek_v4

#endif  // ENGINE_CHAT_DEEPSEEK_V4_DSML_H_
