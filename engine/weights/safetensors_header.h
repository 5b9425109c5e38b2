// The JSON header of a safetensors file, structure only.
#ifndef ENGINE_WEIGHTS_SAFETENSORS_HEADER_H_
#define ENGINE_WEIGHTS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace {

// One tensor as the header describes it, values not yet checked against each other.
struct HeaderEntry {
  std::string name = {};
  std::string dtype = {};
  std::vector<int64_t> shape = {};  // >= 0
  int64_t begin = 0;                // >= 0, bytes from the end of the header
  int64_t end = 0;
};

// InvalidArgument, with the tensor where one is at fault: not valid UTF-8 JSON, a key twice, or
// anything but {"__metadata__": {string: string}, name: {"dtype": string, "shape": [integers],
// "data_offsets": [begin, end]}}. Memory is bounded by a small multiple of the text. Any thread.
absl::StatusOr<std::vector<HeaderEntry>> ParseSafetensorsHeader(std::string_view text);

// A tensor's name for messages: quoted, escaped, cut.
std::string QuotedTensor(std::string_view name);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_SAFETENSORS_HEADER_H_
