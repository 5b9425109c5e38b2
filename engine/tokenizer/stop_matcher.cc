#include "engine/tokenizer/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace millrace {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : include_stop_(include_stop) {
  for (std::string& text : stops) {
    Stop stop;
    stop.borders.assign(text.size() + 1, 0);
    for (size_t length = 1, border = 0; length < text.size(); ++length) {
      while (border > 0 && text[border] != text[length]) border = stop.borders[border];
      if (text[border] == text[length]) ++border;
      stop.borders[length + 1] = border;
    }
    stop.text = std::move(text);
    stops_.push_back(std::move(stop));
  }
}

int StopMatcher::Advance(char byte) {
  int found = -1;
  for (size_t i = 0; i < stops_.size(); ++i) {
    Stop& stop = stops_[i];
    if (stop.text.empty()) continue;
    while (stop.matched > 0 && stop.text[stop.matched] != byte) {
      stop.matched = stop.borders[stop.matched];
    }
    if (stop.text[stop.matched] == byte) ++stop.matched;
    if (stop.matched < stop.text.size()) continue;
    if (found < 0 || stop.text.size() > stops_[static_cast<size_t>(found)].text.size()) {
      found = static_cast<int>(i);
    }
  }
  return found;
}

StopMatcher::Result StopMatcher::Push(std::string_view text) {
  if (matched_.has_value()) return {std::string(), matched_};
  for (const char byte : text) {
    held_.push_back(byte);
    const int found = Advance(byte);
    if (found < 0) continue;
    matched_ = found;
    if (!include_stop_) held_.resize(held_.size() - stops_[static_cast<size_t>(found)].text.size());
    return {std::exchange(held_, std::string()), matched_};
  }
  size_t kept = 0;
  for (const Stop& stop : stops_) kept = std::max(kept, stop.matched);
  Result result{held_.substr(0, held_.size() - kept), std::nullopt};
  held_.erase(0, held_.size() - kept);
  return result;
}

std::string StopMatcher::Flush() { return std::exchange(held_, std::string()); }

}  // namespace millrace
