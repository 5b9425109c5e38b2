// A few threads that run short tasks in order of arrival.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_TASK_POOL_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_TASK_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace {

class TaskPool final {
 public:
  using Task = std::function<void()>;

  // REQUIRES: threads >= 1, max_waiting >= 1.
  TaskPool(int32_t threads, int64_t max_waiting);
  // Runs what is waiting, then joins.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Any thread, never waits. False, and the task is dropped, when max_waiting tasks wait.
  [[nodiscard]] bool TryPost(Task task);

 private:
  void Run();

  const int64_t max_waiting_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_TASK_POOL_H_
