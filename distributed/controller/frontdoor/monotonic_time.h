// Points in time of this process, for intervals. Wall time jumps; this does not.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_MONOTONIC_TIME_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_MONOTONIC_TIME_H_

#include <chrono>

namespace millrace {

using MonotonicTime = std::chrono::steady_clock::time_point;

inline MonotonicTime MonotonicNow() { return std::chrono::steady_clock::now(); }

inline double SecondsBetween(MonotonicTime from, MonotonicTime to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_MONOTONIC_TIME_H_
