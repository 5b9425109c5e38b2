// CHECKs for our own bugs: a failed one prints file, line and condition and aborts the process.
// Never for what the world can do wrong (files, peers, clients): that is absl::Status.
#ifndef KERNELS_CORE_CHECK_H_
#define KERNELS_CORE_CHECK_H_

namespace millrace {

// Prints "CHECK failed at file:line: condition" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace millrace

#define MR_CHECK(cond) \
  ((cond) ? static_cast<void>(0) : ::millrace::CheckFailed(__FILE__, __LINE__, #cond))
#define MR_CHECK_EQ(a, b) MR_CHECK((a) == (b))
#define MR_CHECK_NE(a, b) MR_CHECK((a) != (b))
#define MR_CHECK_LT(a, b) MR_CHECK((a) < (b))
#define MR_CHECK_LE(a, b) MR_CHECK((a) <= (b))
#define MR_CHECK_GT(a, b) MR_CHECK((a) > (b))
#define MR_CHECK_GE(a, b) MR_CHECK((a) >= (b))

#endif  // KERNELS_CORE_CHECK_H_
