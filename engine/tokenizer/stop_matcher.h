// Watches a streamed text for stop strings.
#ifndef ENGINE_TOKENIZER_STOP_MATCHER_H_
#define ENGINE_TOKENIZER_STOP_MATCHER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Passes text on, but holds back the longest end of it that may be the beginning of a stop string.
// The stop string that is complete first wins; of those complete at the same byte the longest. So
// the result does not depend on how the text is cut. One thread at a time. O(stops) per byte.
class StopMatcher {
 public:
  struct Result {
    std::string emit;            // text that may be shown
    std::optional<int> matched;  // index of the stop string that was found
  };

  // `include_stop`: a match ends the text with the stop string, otherwise just before it.
  // Empty stop strings match nothing.
  StopMatcher(std::vector<std::string> stops, bool include_stop);

  // After a match nothing more is emitted, and each Result names the match again.
  Result Push(std::string_view text);

  // What is still held, at the end of the text. Empty after a match.
  std::string Flush();

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> borders;  // by length: the longest proper prefix that is also a suffix
    size_t matched = 0;           // bytes of `text` that the text so far ends with
  };

  // Index of the stop string that is complete with `byte`, or -1.
  int Advance(char byte);

  std::vector<Stop> stops_;
  bool include_stop_;
  std::string held_;
  std::optional<int> matched_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_STOP_MATCHER_H_
