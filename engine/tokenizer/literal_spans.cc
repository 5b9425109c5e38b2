#include "engine/tokenizer/literal_spans.h"

#include <algorithm>
#include <utility>

namespace millrace {

const TextSpan* LiteralSpans::Overlapping(size_t begin, size_t end) const {
  const auto span =
      std::lower_bound(spans_.begin(), spans_.end(), begin,
                       [](const TextSpan& candidate, size_t at) { return candidate.end <= at; });
  return span != spans_.end() && span->begin < end ? &*span : nullptr;
}

LiteralSpans LiteralSpans::Within(size_t begin, size_t end) const {
  std::vector<TextSpan> inside;
  for (const TextSpan& span : spans_) {
    const size_t first = std::max(span.begin, begin);
    const size_t last = std::min(span.end, end);
    if (first < last) inside.push_back({first - begin, last - begin});
  }
  return LiteralSpans(std::move(inside), scope_);
}

}  // namespace millrace
