// Passes every collective on and says which one is running, so that a rank that hangs can be told
// from the ranks that wait for it.
#ifndef DISTRIBUTED_WORKER_WATCHED_COMMUNICATOR_H_
#define DISTRIBUTED_WORKER_WATCHED_COMMUNICATOR_H_

#include <atomic>
#include <memory>
#include <utility>

#include "engine/parallel/communicator.h"

namespace millrace {

class WatchedCommunicator final : public Communicator {
 public:
  explicit WatchedCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int32_t rank() const override { return inner_->rank(); }
  int32_t size() const override { return inner_->size(); }
  absl::Status AllReduceSum(const TensorView& x, Stream stream) override {
    const Mark mark(running_, "AllReduceSum");
    return inner_->AllReduceSum(x, stream);
  }
  absl::Status AllGather(const TensorView& in, const int64_t* counts, const TensorView& out,
                         Stream stream) override {
    const Mark mark(running_, "AllGather");
    return inner_->AllGather(in, counts, out, stream);
  }
  absl::Status AllToAll(const TensorView& in, const int64_t* send, const TensorView& out,
                        const int64_t* receive, Stream stream) override {
    const Mark mark(running_, "AllToAll");
    return inner_->AllToAll(in, send, out, receive, stream);
  }
  absl::Status Broadcast(const TensorView& x, int32_t root, Stream stream) override {
    const Mark mark(running_, "Broadcast");
    return inner_->Broadcast(x, root, stream);
  }
  absl::Status Barrier(Stream stream) override {
    const Mark mark(running_, "Barrier");
    return inner_->Barrier(stream);
  }
  const AllReducePeers* peers() const override { return inner_->peers(); }
  void Abort() override { inner_->Abort(); }

  // Any thread. "" while none runs.
  const char* running() const { return running_.load(std::memory_order_relaxed); }

 private:
  class Mark final {
   public:
    Mark(std::atomic<const char*>& running, const char* name) : running_(running) {
      running_.store(name, std::memory_order_relaxed);
    }
    ~Mark() { running_.store("", std::memory_order_relaxed); }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

   private:
    std::atomic<const char*>& running_;
  };

  const std::unique_ptr<Communicator> inner_;
  std::atomic<const char*> running_ = "";
};

}  // namespace millrace

#endif  // DISTRIBUTED_WORKER_WATCHED_COMMUNICATOR_H_
