#include "distributed/worker/rank.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/comm/connect_nccl.h"
#include "distributed/comm/prefixed_store.h"
#include "distributed/comm/self_test.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);
// How often the device is asked while a step is out and nothing else is to be done.
constexpr std::chrono::microseconds kPoll(20);

// Errors that another rank's failure brings about.
bool BlamesOthers(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

Rank::Rank(RankOptions options, Send send)
    : options_(std::move(options)), send_(std::move(send)), store_(send_) {
  thread_ = std::thread([this] { Loop(); });
}

Rank::~Rank() {
  Stop();
  thread_.join();
}

void Rank::Push(worker::ControllerMessage message) {
  if (message.has_store_value()) {
    store_.OnValue(message.store_value());
    return;
  }
  const std::lock_guard<std::mutex> lock(mu_);
  queue_.push_back(std::move(message));
  changed_.notify_all();
}

void Rank::Stop() {
  store_.Stop();
  std::shared_ptr<WatchedCommunicator> running, tensor;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    stopped_ = true;
    running = communicator_;
    tensor = tensor_;
    changed_.notify_all();
  }
  if (running != nullptr) running->Abort();
  if (tensor != nullptr) tensor->Abort();
}

bool Rank::WaitUntilDone(absl::Duration timeout) {
  std::unique_lock<std::mutex> lock(mu_);
  return changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout), [&] { return done_; });
}

absl::Status Rank::error() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return error_;
}

bool Rank::failed_for_good() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return failed_for_good_;
}

std::string Rank::Describe() const {
  const int32_t rank = rank_;
  return rank < 0 ? "no rank yet" : absl::StrCat("rank ", rank, " of ", world_.load());
}

worker::Heartbeat Rank::Heartbeat() const {
  worker::Heartbeat heartbeat;
  heartbeat.set_step(step_);
  const std::shared_ptr<WatchedCommunicator> running = communicator();
  if (running != nullptr) heartbeat.set_collective(running->running());
  const std::shared_ptr<WatchedCommunicator> tensor = tensor_communicator();
  if (tensor != nullptr && heartbeat.collective().empty()) {
    heartbeat.set_collective(tensor->running());
  }
  return heartbeat;
}

std::shared_ptr<WatchedCommunicator> Rank::communicator() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return communicator_;
}

std::shared_ptr<WatchedCommunicator> Rank::tensor_communicator() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return tensor_;
}

void Rank::Loop() {
  if (options_.previous != nullptr) {
    while (!options_.previous->WaitUntilDone(absl::Minutes(1))) {
    }
    options_.previous.reset();
  }
  absl::Status status;
  while (status.ok()) {
    if (StepIsOut()) {
      const absl::StatusOr<bool> sent = SendReady();
      status = sent.status();
      if (!sent.ok() || *sent) continue;
    }
    worker::ControllerMessage message;
    {
      std::unique_lock<std::mutex> lock(mu_);
      const auto woken = [&] { return stopped_ || !queue_.empty(); };
      if (!StepIsOut()) {
        changed_.wait(lock, woken);
      } else if (!changed_.wait_for(lock, kPoll, woken)) {
        continue;
      }
      if (stopped_) break;
      message = std::move(queue_.front());
      queue_.pop_front();
    }
    status = Handle(message);
  }
  // The model holds on to device and communicator: it goes first.
  model_.reset();
  std::shared_ptr<WatchedCommunicator> communicator, tensor;
  bool tell = false;
  const bool device_lost = !status.ok() && !options_.device->Check().ok();
  {
    const std::lock_guard<std::mutex> lock(mu_);
    tell = !status.ok() && !stopped_;
    if (tell) {
      error_ = status;
      failed_for_good_ = device_lost || (limits_.num_pages == 0 && !BlamesOthers(status));
    }
    communicator = std::move(communicator_);
    tensor = std::move(tensor_);
  }
  if (tell) {
    worker::WorkerMessage message;
    message.mutable_failed()->set_code(static_cast<int32_t>(status.code()));
    message.mutable_failed()->set_message(std::string(status.message()));
    message.mutable_failed()->set_phase(phase_);
    send_(message);
  }
  communicator.reset();
  tensor.reset();
  const std::lock_guard<std::mutex> lock(mu_);
  done_ = true;
  changed_.notify_all();
}

absl::Status Rank::Handle(const worker::ControllerMessage& message) {
  switch (message.kind_case()) {
    case worker::ControllerMessage::kAssign:
      phase_ = "self-test";
      return OnAssign(message.assign());
    case worker::ControllerMessage::kLoad:
      phase_ = "load";
      return OnLoad();
    case worker::ControllerMessage::kConfigure:
      phase_ = "cache";
      return OnConfigure(message.configure());
    case worker::ControllerMessage::kStep:
      return OnStep(message.step());
    default:
      return absl::InternalError(
          absl::StrCat("an unexpected message, kind ", static_cast<int>(message.kind_case())));
  }
}

absl::StatusOr<JoinedGroup> Rank::Join(const ConnectOptions& options, KeyValueStore& store,
                                       bool peer_memory) {
  if (options.size == 1) return JoinedGroup{std::make_unique<SingleRank>(*options_.device), "none"};
  if (options_.device->type() != DeviceType::kCuda) {
    ASSIGN_OR_RETURN(std::unique_ptr<SlotCommunicator> joined, ConnectGroup(options, store));
    std::string transport = joined->Describe();
    return JoinedGroup{std::move(joined), std::move(transport)};
  }
  JoinedGroup group = {.transport = NcclVersion()};
  ASSIGN_OR_RETURN(group.communicator, ConnectNccl(options, store, *options_.device));
  if (!peer_memory || options.size > kAllReduceMaxRanks) return group;
  return AddPeerMemory(options, std::move(group), store, *options_.device);
}

absl::StatusOr<std::string> Rank::JoinGroups(const worker::Assign& assign) {
  ConnectOptions connect = {.rank = assign.rank(),
                            .size = assign.world(),
                            .transport = options_.transport,
                            .address = options_.address,
                            .connect_timeout = absl::Seconds(assign.self_test_timeout_s()),
                            .timeout = absl::Seconds(assign.step_timeout_s())};
  const bool peer_memory = !assign.disable_custom_all_reduce();
  const bool several = config_.data_parallel_size > 1;
  // Sums are of the ranks of a group.
  ASSIGN_OR_RETURN(JoinedGroup world, Join(connect, store_, peer_memory && !several));
  const auto watched = std::make_shared<WatchedCommunicator>(std::move(world.communicator));
  std::shared_ptr<WatchedCommunicator> tensor;
  if (several) {
    PrefixedStore store(store_, absl::StrCat("group ", assign.rank() / group_size_, "/"));
    connect.rank = assign.rank() % group_size_;
    connect.size = group_size_;
    ASSIGN_OR_RETURN(JoinedGroup group, Join(connect, store, peer_memory));
    tensor = std::make_shared<WatchedCommunicator>(std::move(group.communicator));
  }
  const std::lock_guard<std::mutex> lock(mu_);
  if (stopped_) return absl::UnavailableError("the group has ended");
  communicator_ = watched;
  tensor_ = tensor;
  return world.transport;
}

absl::Status Rank::OnAssign(const worker::Assign& assign) {
  if (assign.world() < 1 || assign.rank() < 0 || assign.rank() >= assign.world()) {
    return absl::InternalError(
        absl::StrCat("assigned rank ", assign.rank(), " of ", assign.world()));
  }
  rank_ = assign.rank();
  world_ = assign.world();
  ASSIGN_OR_RETURN(config_, FromProto(assign.config()));
  if (!options_.model_dir.empty()) config_.model_dir = options_.model_dir;
  if (assign.world() % config_.data_parallel_size != 0) {
    return absl::InternalError(
        absl::StrCat(assign.world(), " ranks in ", config_.data_parallel_size, " groups"));
  }
  group_size_ = assign.world() / config_.data_parallel_size;
  ASSIGN_OR_RETURN(const std::string transport, JoinGroups(assign));
  RETURN_IF_ERROR(CollectiveSelfTest(*communicator(), *options_.device));
  if (const auto tensor = tensor_communicator(); tensor != nullptr) {
    RETURN_IF_ERROR(CollectiveSelfTest(*tensor, *options_.device));
  }
  RETURN_IF_ERROR(CheckFingerprint(assign.model_fingerprint()));
  worker::WorkerMessage message;
  message.mutable_self_tested()->set_transport(transport);
  send_(message);
  return absl::OkStatus();
}

absl::Status Rank::CheckFingerprint(const std::string& want) {
  if (want.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string got, options_.factory->Fingerprint(config_.model_dir));
  if (got.empty() || got == want) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the model in ", config_.model_dir,
                                                    " is another one: fingerprint ", got, " here, ",
                                                    want, " at the controller"));
}

absl::Status Rank::OnLoad() {
  absl::Time next = absl::InfinitePast();
  const auto progress = [&](int64_t done, int64_t total) {
    if (absl::Now() < next && done != total) return;
    next = absl::Now() + kProgressInterval;
    worker::WorkerMessage message;
    message.mutable_load_progress()->set_bytes_done(done);
    message.mutable_load_progress()->set_bytes_total(total);
    send_(message);
  };
  const std::shared_ptr<WatchedCommunicator> watched = communicator();
  if (watched == nullptr || model_ != nullptr) return absl::InternalError("an unexpected Load");
  const std::shared_ptr<WatchedCommunicator> tensor = tensor_communicator();
  const RankGroups groups(tensor == nullptr ? *watched : *tensor, *watched);
  ASSIGN_OR_RETURN(model_, options_.factory->Load(config_, *options_.device, groups, progress));
  ASSIGN_OR_RETURN(const RankMemory memory, model_->Memory());
  worker::WorkerMessage message;
  *message.mutable_loaded() = ToProto(memory);
  send_(message);
  return absl::OkStatus();
}

absl::Status Rank::OnConfigure(const worker::Configure& configure) {
  if (model_ == nullptr) return absl::InternalError("an unexpected Configure");
  RETURN_IF_ERROR(model_->AllocateCache(configure.num_pages()));
  limits_ = StepLimits::Of(config_, configure.num_pages(), model_->VocabSize());
  worker::WorkerMessage message;
  message.mutable_ready();
  send_(message);
  return absl::OkStatus();
}

absl::Status Rank::OnStep(const worker::StepPlan& proto) {
  phase_ = absl::StrCat("step ", proto.step());
  if (model_ == nullptr) return absl::InternalError("an unexpected step");
  ASSIGN_OR_RETURN(const StepPlan plan, FromProto(proto, limits_));
  step_ = plan.step;
  return model_->Launch(plan);
}

absl::StatusOr<bool> Rank::SendReady() {
  ASSIGN_OR_RETURN(const bool ready, model_->Ready());
  if (!ready) return false;
  ASSIGN_OR_RETURN(const StepResult result, model_->Collect());
  worker::WorkerMessage message;
  if (rank_ % group_size_ == 0) {
    *message.mutable_step_done() = ToProto(result);
  } else {
    message.mutable_step_done()->set_step(result.step);
  }
  if (!StepIsOut()) step_ = 0;
  send_(message);
  return true;
}

}  // namespace millrace
