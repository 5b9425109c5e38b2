#include "distributed/controller/cluster/worker_hub_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "distributed/controller/cluster/hello_check.h"
#include "distributed/session/secret.h"
#include "distributed/session/version.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// How long a rank that broke off because of others is held back as the culprit.
constexpr absl::Duration kSuspicion = absl::Milliseconds(300);
// Open at a time, those that have proved nothing included.
constexpr size_t kMaxSessions = 2048;
constexpr absl::Duration kShutdownPatience = absl::Seconds(2);

absl::Status CheckOptions(const WorkerHubOptions& options) {
  RETURN_IF_ERROR(CheckSecret(options.secret));
  const auto want = [](const std::string& text) {
    return absl::InvalidArgumentError(absl::StrCat("worker hub: want ", text));
  };
  if (options.world < 1 || options.world > 1024) return want("1 to 1024 ranks");
  if (options.config.data_parallel_size < 1 ||
      options.world % options.config.data_parallel_size != 0) {
    return want("as many ranks in each data-parallel group");
  }
  if (options.vocab_size < 1) return want("vocab_size > 0");
  if (options.port < 0 || options.port > 65535) return want("a port below 65536");
  if (options.config.max_model_len < 1) return want("config.max_model_len > 0");
  if (options.num_pages < 0 || options.kv_cache_memory_bytes < 0) return want("sizes >= 0");
  if (!(options.memory_utilization >= 0 && options.memory_utilization <= 1)) {
    return want("a memory utilization in [0, 1]");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerHub>> WorkerHub::Start(WorkerHubOptions options,
                                                            WorkerHubListener* listener) {
  RETURN_IF_ERROR(CheckOptions(options));
  auto hub = std::make_unique<WorkerHubImpl>(std::move(options), listener);
  RETURN_IF_ERROR(hub->Listen());
  return hub;
}

WorkerHubImpl::WorkerHubImpl(WorkerHubOptions options, WorkerHubListener* listener)
    : options_(std::move(options)),
      protocol_revision_(ProtocolRevision()),
      listener_(listener),
      start_(absl::Now()) {}

WorkerHubImpl::~WorkerHubImpl() { Shutdown("the controller ends"); }

absl::Status WorkerHubImpl::Listen() {
  grpc::ServerBuilder builder;
  const bool v6 = options_.host.find(':') != std::string::npos;
  const std::string address =
      absl::StrCat(v6 ? "[" : "", options_.host, v6 ? "]:" : ":", options_.port);
  int bound = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &bound);
  builder.RegisterService(this);
  // Limits first: they hold for peers that have proved nothing.
  builder.SetMaxReceiveMessageSize(kMaxFrameBytes);
  builder.SetMaxSendMessageSize(kMaxFrameBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 8192);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 4);
  // A connection that brings no HTTP/2, or no session, is closed.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 900);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 900);
  // A second controller on the same port is a mistake to be told of.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || bound == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen for workers on ", address,
                     ": is the port taken? Choose another with --worker-port"));
  }
  port_ = bound;
  monitor_ = std::thread([this] { Monitor(); });
  return absl::OkStatus();
}

absl::StatusOr<ReadyGroup> WorkerHubImpl::WaitForGroup() {
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait(lock, [&] { return ready_.has_value() || !final_error_.ok() || shut_down_; });
  if (!final_error_.ok()) return final_error_;
  if (shut_down_) return absl::CancelledError("the worker hub was shut down");
  ReadyGroup group = *std::move(ready_);
  ready_.reset();
  return group;
}

void WorkerHubImpl::Shutdown(const std::string& reason) {
  {
    std::unique_lock<std::mutex> lock(mu_);
    if (shut_down_) return;
    shut_down_ = true;
    worker::ControllerMessage message;
    message.mutable_shutdown()->set_reason(reason);
    for (const std::shared_ptr<HubSession>& session : sessions_) {
      session->Send(message);
      session->Dismiss(absl::OkStatus());
    }
    if (group_ != nullptr && group_->steps() != nullptr) {
      group_->steps()->MarkLost(absl::UnavailableError("the controller is shutting down"));
    }
    changed_.notify_all();
    if (server_ == nullptr) return;
    changed_.wait_for(lock, absl::ToChronoMilliseconds(kShutdownPatience),
                      [&] { return sessions_.empty(); });
  }
  server_->Shutdown(absl::ToChronoTime(absl::Now()));
  monitor_.join();
  server_.reset();
  const std::lock_guard<std::mutex> lock(mu_);
  group_.reset();
  waiting_.clear();
}

grpc::ServerBidiReactor<worker::Frame, worker::Frame>* WorkerHubImpl::Session(
    grpc::CallbackServerContext* context) {
  const std::shared_ptr<HubSession> session = HubSession::Create(context, options_.secret, this);
  bool welcome = false;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    sessions_.push_back(session);
    welcome = !shut_down_ && sessions_.size() < kMaxSessions;
  }
  session->Start();
  if (!welcome) session->Close(absl::UnavailableError("the controller takes no more sessions"));
  return session->reactor();
}

absl::Status WorkerHubImpl::CheckNewcomer(const worker::Hello& hello) const {
  const std::vector<Member>& present = group_ != nullptr ? group_->members() : waiting_;
  RETURN_IF_ERROR(CheckHello(
      hello, {.build_version = options_.build_version,
              .protocol_revision = protocol_revision_,
              .model_fingerprint = options_.model_fingerprint,
              .device_kind = present.empty() ? std::string() : present[0].hello.device_kind(),
              .tensor_parallel_size = options_.world / options_.config.data_parallel_size}));
  std::vector<std::string> names;
  for (const Member& member : present) {
    names.push_back(member.Name());
    if (member.hello.instance() == hello.instance()) {
      return absl::AlreadyExistsError(
          absl::StrCat("worker ", member.Name(), " is connected already"));
    }
  }
  if (group_ != nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the group is full: ", options_.world, " of ", options_.world,
                     " workers are there: ", absl::StrJoin(names, ", ")));
  }
  return absl::OkStatus();
}

void WorkerHubImpl::OnHello(const std::shared_ptr<HubSession>& session, worker::Hello hello) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (shut_down_) return;
  const absl::Status fits = CheckNewcomer(hello);
  worker::ControllerMessage answer;
  if (!fits.ok()) {
    answer.mutable_refused()->set_code(static_cast<int32_t>(fits.code()));
    answer.mutable_refused()->set_message(std::string(fits.message()));
    session->Send(answer);
    session->Close(fits);
    return;  // OnClosed logs it
  }
  answer.mutable_accepted()->set_build_version(options_.build_version);
  session->Send(answer);
  const Member member = {session, std::move(hello)};
  listener_->OnNotice(absl::StrCat("worker ", member.Name(),
                                   " joined: ", member.hello.device_description(), ", ",
                                   member.hello.threads(), " threads"));
  waiting_.push_back(member);
  TellWaiting();
  FormGroupIfComplete();
}

void WorkerHubImpl::FormGroupIfComplete() {
  if (group_ != nullptr || !final_error_.ok()) return;
  if (static_cast<int32_t>(waiting_.size()) < options_.world) return;
  const std::string salt = absl::StrCat(absl::Hex(absl::ToUnixSeconds(start_)));
  group_ = std::make_unique<GroupAssembly>(options_, absl::StrCat(salt, "-", ++groups_made_),
                                           std::exchange(waiting_, {}));
  suspicion_.reset();
}

void WorkerHubImpl::OnMessage(const std::shared_ptr<HubSession>& session,
                              worker::WorkerMessage message) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (shut_down_) return;
  const int32_t rank = group_ == nullptr ? -1 : group_->RankOf(*session);
  if (message.has_leaving()) {
    const absl::Status left = absl::UnavailableError("it left");
    session->Close(absl::OkStatus());
    if (rank >= 0) {
      Lose(rank, left);
    } else {
      DropWaiting(*session, "it left");
    }
    return;
  }
  if (rank < 0) return;  // a heartbeat of one that waits, or the rest of a group that was lost
  if (message.has_heartbeat()) {
    group_->OnHeartbeat(rank, message.heartbeat());
    return;
  }
  if (message.has_failed()) {
    OnFailed(rank, message.failed());
    return;
  }
  const GroupAssembly::Stage before = group_->stage();
  absl::Status status = group_->OnMessage(rank, message);
  if (absl::IsInvalidArgument(status) || absl::IsAlreadyExists(status)) {
    status = absl::UnavailableError(
        absl::StrCat("it breaks the protocol: ", std::string(status.message())));
  }
  if (!status.ok()) {
    Lose(rank, status);
    return;
  }
  AfterGroupMessage(before);
}

void WorkerHubImpl::AfterGroupMessage(GroupAssembly::Stage before) {
  if (before == GroupAssembly::Stage::kLoading) {
    listener_->OnLoading(group_->loaded_bytes(), group_->total_bytes());
  }
  if (before == GroupAssembly::Stage::kReady || group_->stage() != GroupAssembly::Stage::kReady) {
    return;
  }
  ++groups_ready_;
  ready_ = ReadyGroup{std::make_unique<WorkerGroup>(group_->steps()), group_->info()};
  listener_->OnReady(group_->info());
  changed_.notify_all();
}

void WorkerHubImpl::OnFailed(int32_t rank, const worker::Failed& failed) {
  const absl::Status status(
      static_cast<absl::StatusCode>(failed.code()),
      absl::StrCat(failed.phase().substr(0, 64), ": ", failed.message().substr(0, 4096)));
  if (status.ok()) {
    Lose(rank, absl::InternalError("it failed without a reason"));
  } else if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    // Most likely it is the victim of another rank.
    if (!suspicion_.has_value()) suspicion_ = {rank, status, absl::Now() + kSuspicion};
  } else {
    Lose(rank, status);
  }
}

void WorkerHubImpl::Lose(int32_t rank, const absl::Status& status) {
  const bool ready = group_->stage() == GroupAssembly::Stage::kReady;
  const std::string who = rank < 0 ? "the group" : group_->NameOf(rank);
  const std::string message = absl::StrCat(who, ": ", std::string(status.message()));
  // Executors know two kinds: a rank is gone, or an op failed.
  const bool gone = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  const absl::Status for_executor =
      gone ? absl::UnavailableError(absl::StrCat("worker lost: ", message))
           : absl::InternalError(absl::StrCat("worker failed: ", message));
  // What a model or a machine lacks at the start does not change by trying again.
  if (!ready && !gone && !was_ready()) final_error_ = absl::Status(status.code(), message);
  worker::ControllerMessage order;
  if (final_error_.ok()) {
    order.mutable_reform()->set_reason(message);
  } else {
    order.mutable_shutdown()->set_reason(message);
  }
  for (const Member& member : group_->members()) {
    member.session->Send(order);
    member.session->Dismiss(absl::UnavailableError(message));
  }
  // Health first: nobody shall be sent here by it once requests fail.
  listener_->OnLost(rank, absl::Status(status.code(), message));
  if (group_->steps() != nullptr) group_->steps()->MarkLost(for_executor);
  group_.reset();
  suspicion_.reset();
  ready_.reset();
  TellWaiting();
  changed_.notify_all();
}

void WorkerHubImpl::DropWaiting(const HubSession& session, const std::string& why) {
  for (auto member = waiting_.begin(); member != waiting_.end(); ++member) {
    if (member->session.get() != &session) continue;
    listener_->OnNotice(absl::StrCat("worker ", member->Name(), " is gone: ", why));
    waiting_.erase(member);
    TellWaiting();
    return;
  }
}

void WorkerHubImpl::OnClosed(const std::shared_ptr<HubSession>& session,
                             const absl::Status& reason) {
  const std::lock_guard<std::mutex> lock(mu_);
  sessions_.erase(std::remove(sessions_.begin(), sessions_.end(), session), sessions_.end());
  changed_.notify_all();
  if (shut_down_) return;
  if (group_ != nullptr && group_->RankOf(*session) >= 0) {
    Lose(group_->RankOf(*session), absl::UnavailableError(reason.message()));
    return;
  }
  DropWaiting(*session, std::string(reason.message()));
  if (session->ever_open()) {
    if (!absl::IsUnavailable(reason) && !reason.ok()) RefusePeer(*session, reason);
  } else {
    RefusePeer(*session, reason);
  }
}

void WorkerHubImpl::RefusePeer(const HubSession& session, const absl::Status& why) {
  // Ports differ with every try.
  const std::string peer = session.peer().substr(0, session.peer().rfind(':'));
  const absl::Time now = absl::Now();
  for (auto entry = refused_.begin(); entry != refused_.end();) {
    entry = entry->second < now ? refused_.erase(entry) : std::next(entry);
  }
  constexpr size_t kMaxPeers = 1024;
  if (refused_.count(peer) > 0 || refused_.size() >= kMaxPeers) return;
  refused_[peer] = now + absl::Minutes(1);
  listener_->OnNotice(absl::StrCat("refused a peer at ", session.peer(), ": ",
                                   std::string(why.message()),
                                   " (told once a minute for each address)"));
}

void WorkerHubImpl::TellWaiting() {
  if (group_ != nullptr || shut_down_ || !final_error_.ok()) return;
  next_waiting_ = absl::Now() + absl::Seconds(10);
  listener_->OnWaitingForWorkers(static_cast<int32_t>(waiting_.size()), options_.world);
}

}  // namespace millrace
