#include "distributed/controller/frontdoor/task_pool.h"

#include <utility>

#include "kernels/core/check.h"

namespace millrace {

TaskPool::TaskPool(int32_t threads, int64_t max_waiting) : max_waiting_(max_waiting) {
  MR_CHECK_GE(threads, 1);
  MR_CHECK_GE(max_waiting, 1);
  for (int32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

TaskPool::~TaskPool() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool TaskPool::TryPost(Task task) {
  {
    std::lock_guard lock(mu_);
    if (static_cast<int64_t>(tasks_.size()) >= max_waiting_) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void TaskPool::Run() {
  std::unique_lock lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace millrace
