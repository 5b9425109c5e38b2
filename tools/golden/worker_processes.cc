#include "tools/golden/worker_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "distributed/controller/cluster/worker_hub.h"
#include "distributed/session/secret.h"
#include "distributed/session/version.h"
#include "engine/config/parse.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr absl::Duration kStartupTimeout = absl::Minutes(3);
constexpr absl::Duration kExitTimeout = absl::Seconds(5);

// The executor is all that golden wants to know.
class QuietListener final : public WorkerHubListener {
 public:
  void OnWaitingForWorkers(int32_t, int32_t) override {}
  void OnLoading(int64_t, int64_t) override {}
  void OnReady(const GroupInfo&) override {}
  void OnLost(int32_t, const absl::Status&) override {}
  void OnNotice(const std::string&) override {}
};

// A folder that goes with its owner.
class TempFolder final {
 public:
  static absl::StatusOr<std::unique_ptr<TempFolder>> Make() {
    std::error_code error;
    std::string path =
        (std::filesystem::temp_directory_path(error) / "millrace-golden-XXXXXX").string();
    if (error || mkdtemp(path.data()) == nullptr) {
      return absl::UnavailableError("cannot make a temporary folder");
    }
    return std::unique_ptr<TempFolder>(new TempFolder(std::move(path)));
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit TempFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  // What a worker logs would hide the table; its errors come through the hub.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot start ", arguments[0], ": ", std::strerror(error)));
  }
  return pid;
}

class WorkerProcesses final : public StepExecutor {
 public:
  ~WorkerProcesses() override {
    if (hub_ != nullptr) hub_->Shutdown("golden is done");
    const absl::Time deadline = absl::Now() + kExitTimeout;
    for (const pid_t pid : pids_) {
      while (waitpid(pid, nullptr, WNOHANG) == 0) {
        if (absl::Now() > deadline) kill(pid, SIGKILL);
        absl::SleepFor(absl::Milliseconds(10));
      }
    }
  }

  absl::Status Start(const WorkerProcessesOptions& options) {
    ASSIGN_OR_RETURN(folder_, TempFolder::Make());
    const std::string secret_file = folder_->path() + "/secret";
    WorkerHubOptions hub;
    ASSIGN_OR_RETURN(hub.secret, ReadOrMakeSecretFile(secret_file));
    hub.build_version = std::string(kBuildVersion);
    hub.config = options.runner;
    hub.world = options.tensor_parallel_size * options.runner.data_parallel_size;
    const int32_t ranks = hub.world;
    ASSIGN_OR_RETURN(const ModelConfig model, LoadModelConfig(options.runner.model_dir));
    hub.vocab_size = model.vocab_size;
    hub.num_pages = options.num_pages;
    hub.startup_timeout = kStartupTimeout;
    ASSIGN_OR_RETURN(hub_, WorkerHub::Start(std::move(hub), &listener_));
    for (int32_t r = 0; r < ranks; ++r) {
      ASSIGN_OR_RETURN(
          const pid_t pid,
          Spawn(
              {options.worker_binary, absl::StrCat("--controller=127.0.0.1:", hub_->port()),
               absl::StrCat("--cluster_secret_file=", secret_file),
               absl::StrCat("--threads=", options.threads_per_rank),
               absl::StrCat("--device=",
                            options.device == DeviceType::kCuda ? absl::StrCat("cuda:", r) : "cpu"),
               absl::StrCat("--tensor_parallel_size=", options.tensor_parallel_size)}));
      pids_.push_back(pid);
    }
    ASSIGN_OR_RETURN(ReadyGroup group, hub_->WaitForGroup());
    executor_ = std::move(group.executor);
    return absl::OkStatus();
  }

  absl::Status Launch(const StepPlan& plan) override { return executor_->Launch(plan); }
  absl::StatusOr<StepResult> Collect() override { return executor_->Collect(); }

 private:
  std::unique_ptr<TempFolder> folder_;
  QuietListener listener_;
  std::unique_ptr<WorkerHub> hub_;
  std::vector<pid_t> pids_;
  std::unique_ptr<StepExecutor> executor_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepExecutor>> StartWorkerProcesses(
    const WorkerProcessesOptions& options) {
  auto processes = std::make_unique<WorkerProcesses>();
  RETURN_IF_ERROR(processes->Start(options));
  return std::unique_ptr<StepExecutor>(std::move(processes));
}

}  // namespace millrace
