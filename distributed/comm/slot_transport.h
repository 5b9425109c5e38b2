// How bytes get from each rank to every other: the one thing in which shared memory and gloo
// differ. SlotCommunicator builds the collectives on it.
#ifndef DISTRIBUTED_COMM_SLOT_TRANSPORT_H_
#define DISTRIBUTED_COMM_SLOT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace millrace {

// Works in rounds. In each, every rank fills its slot and calls Exchange; then it may read every
// rank's slot. Two sets of slots take turns, so one wait a round is enough: a rank that fills a
// slot again has heard of every other rank's next round, and so knows that they are done reading.
// One thread, except Abort.
class SlotTransport {
 public:
  virtual ~SlotTransport() = default;

  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;
  virtual int64_t slot_bytes() const = 0;

  // This rank's slot for the coming round.
  virtual std::byte* outgoing() = 0;
  // Sends the first `bytes` of it, in [0, slot_bytes()] and not necessarily the same on each rank,
  // and waits for every other rank. UNAVAILABLE naming a rank that has left, or after Abort;
  // DEADLINE_EXCEEDED naming one that did not come. Not used again after an error.
  virtual absl::Status Exchange(int64_t bytes) = 0;
  // What `rank` (maybe this one) sent in the last round; valid until the next Exchange.
  virtual const std::byte* incoming(int32_t rank) const = 0;

  // Any thread, any number of times.
  virtual void Abort() = 0;

  virtual std::string Describe() const = 0;  // "shared memory", "gloo on 10.0.0.7"
};

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_SLOT_TRANSPORT_H_
