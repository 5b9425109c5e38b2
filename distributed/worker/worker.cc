#include "distributed/worker/worker.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/comm/connect.h"
#include "distributed/session/handshake.h"
#include "distributed/session/secret.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr absl::Duration kHeartbeat = absl::Seconds(1);
constexpr absl::Duration kTick = absl::Milliseconds(100);
// Whoever lost his group dials a controller that was there a moment ago.
constexpr absl::Duration kRedialTimeout = absl::Seconds(5);
// To let go of everything when the process ends anyway.
constexpr absl::Duration kEndPatience = absl::Milliseconds(500);

std::string HostName() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

}  // namespace

Worker::Worker(WorkerOptions options, Device& device, RankModelFactory& factory,
               std::function<void(const std::string&)> log)
    : options_(std::move(options)),
      instance_(absl::BytesToHexString(RandomBytes(8).value_or(""))),
      device_(device),
      factory_(factory),
      log_(std::move(log)) {}

Worker::~Worker() = default;

void Worker::Stop() {
  const std::lock_guard<std::mutex> lock(mu_);
  stopping_ = true;
  changed_.notify_all();
}

bool Worker::stopping() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return stopping_;
}

std::string Worker::Describe() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return rank_ == nullptr ? description_ : rank_->Describe();
}

absl::Status Worker::Run() {
  RETURN_IF_ERROR(CheckSecret(options_.secret));
  absl::Time deadline = absl::Now() + options_.connect_timeout;
  while (true) {
    ASSIGN_OR_RETURN(const Outcome outcome, Serve(deadline - absl::Now()));
    if (outcome == Outcome::kFinished) return absl::OkStatus();
    if (outcome == Outcome::kReform) {
      deadline = absl::Now() + std::min(options_.connect_timeout, kRedialTimeout);
    } else {
      absl::SleepFor(kTick);
    }
  }
}

absl::StatusOr<worker::WorkerMessage> Worker::MakeHello() const {
  worker::WorkerMessage message;
  worker::Hello* hello = message.mutable_hello();
  hello->set_build_version(options_.build_version);
  hello->set_protocol_revision(options_.protocol_revision);
  hello->set_host(HostName());
  hello->set_pid(getpid());
  hello->set_device_kind(options_.device_kind);
  hello->set_device_description(options_.device_description);
  hello->set_memory_id(options_.memory_id);
  hello->set_threads(options_.threads);
  hello->set_model_dir(options_.model_dir);
  hello->set_instance(instance_);
  hello->set_tensor_parallel_size(options_.tensor_parallel_size);
  if (!options_.model_dir.empty()) {
    ASSIGN_OR_RETURN(*hello->mutable_model_fingerprint(), factory_.Fingerprint(options_.model_dir));
  }
  return message;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Worker::Connect(absl::Duration timeout) const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxFrameBytes);
  arguments.SetMaxSendMessageSize(kMaxFrameBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(options_.controller, grpc::InsecureChannelCredentials(), arguments);
  const absl::Time deadline = absl::Now() + timeout;
  while (absl::Now() < deadline && !stopping()) {
    if (channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kTick))) return channel;
  }
  if (stopping()) return absl::CancelledError("stopped");
  return absl::UnavailableError(absl::StrCat("no controller answers at ", options_.controller,
                                             " within ", absl::FormatDuration(timeout)));
}

absl::StatusOr<Worker::Outcome> Worker::Serve(absl::Duration connect_timeout) {
  ASSIGN_OR_RETURN(const worker::WorkerMessage hello, MakeHello());
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Connect(connect_timeout);
  if (stopping()) return Outcome::kFinished;
  if (!channel.ok()) return channel.status();
  ASSIGN_OR_RETURN(const std::string address, LocalAddressTowards(options_.controller));
  std::shared_ptr<Rank> previous;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    previous = rank_;
  }
  const std::shared_ptr<ControllerSession> session =
      ControllerSession::Create(*std::move(channel), options_.secret, hello, this);
  const auto rank = std::make_shared<Rank>(
      RankOptions{.device = &device_,
                  .factory = &factory_,
                  .model_dir = options_.model_dir,
                  .transport = options_.transport,
                  .address = address,
                  .previous = previous},
      [session](const worker::WorkerMessage& message) { session->Send(message); });
  {
    const std::lock_guard<std::mutex> lock(mu_);
    rank_ = rank;
    joined_ = false;
    ended_ = false;
    end_ = absl::OkStatus();
    last_word_.reset();
  }
  session->Start();
  const absl::StatusOr<Outcome> outcome = Watch(*session, *rank);
  rank->Stop();
  // A controller that is silent is not waited for; one that has been told something closes.
  const bool lost = absl::IsUnavailable(outcome.status());
  EndSession(*session, lost ? absl::ZeroDuration() : kEndPatience);
  // After a reform the next rank waits for this one, under a new session. A rank that still
  // computes when the process is to end is left alone; its destructor would wait.
  const bool over = !outcome.ok() || *outcome == Outcome::kFinished;
  if (over && rank->WaitUntilDone(kEndPatience)) {
    const std::lock_guard<std::mutex> lock(mu_);
    description_ = rank->Describe();
    rank_.reset();
  }
  return outcome;
}

absl::StatusOr<Worker::Outcome> Worker::Watch(ControllerSession& session, Rank& rank) {
  absl::Time next_heartbeat = absl::Now() + kHeartbeat;
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mu_);
      changed_.wait_for(lock, absl::ToChronoMilliseconds(kTick),
                        [&] { return ended_ || stopping_ || last_word_.has_value(); });
    }
    std::optional<absl::StatusOr<Outcome>> verdict = Verdict(session, rank);
    if (verdict.has_value()) {
      if (stopping()) {
        worker::WorkerMessage message;
        message.mutable_leaving();
        session.Send(message);
      }
      return *std::move(verdict);
    }
    if (absl::Now() < next_heartbeat) continue;
    next_heartbeat = absl::Now() + kHeartbeat;
    worker::WorkerMessage message;
    *message.mutable_heartbeat() = rank.Heartbeat();
    session.Send(message);
  }
}

std::optional<absl::StatusOr<Worker::Outcome>> Worker::Verdict(const ControllerSession& session,
                                                               const Rank& rank) const {
  const std::lock_guard<std::mutex> lock(mu_);
  if (stopping_) return Outcome::kFinished;
  if (rank.failed_for_good()) return rank.error();
  if (last_word_.has_value()) {
    if (last_word_->has_reform()) {
      log_(absl::StrCat("the group has ended: ", last_word_->reform().reason(),
                        "; dialling the controller again"));
      return Outcome::kReform;
    }
    if (last_word_->has_shutdown()) {
      log_(absl::StrCat("the controller ends: ", last_word_->shutdown().reason()));
      return Outcome::kFinished;
    }
    return absl::Status(static_cast<absl::StatusCode>(last_word_->refused().code()),
                        last_word_->refused().message());
  }
  if (ended_) {
    if (absl::IsUnauthenticated(end_)) return end_;
    if (!joined_) return Outcome::kNotJoined;  // busy, or just starting or ending: try again
    return absl::UnavailableError(absl::StrCat(
        "the controller at ", options_.controller,
        " is gone: ", end_.ok() ? "it closed the session" : std::string(end_.message())));
  }
  const absl::Duration silence = session.Silence();
  if (silence > options_.lease) {
    return absl::UnavailableError(
        absl::StrCat("the controller at ", options_.controller, " has been silent for ",
                     absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(1)))));
  }
  return std::nullopt;
}

void Worker::EndSession(ControllerSession& session, absl::Duration patience) {
  std::unique_lock<std::mutex> lock(mu_);
  const auto ended = [&] { return ended_; };
  if (changed_.wait_for(lock, absl::ToChronoMilliseconds(patience), ended)) return;
  lock.unlock();
  session.Cancel();
  lock.lock();
  changed_.wait(lock, ended);  // a cancelled stream always ends
}

void Worker::OnMessage(worker::ControllerMessage message) {
  std::shared_ptr<Rank> rank;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (message.has_heartbeat()) return;
    if (message.has_accepted()) {
      joined_ = true;
      log_(absl::StrCat("joined the cluster of ", options_.controller));
      return;
    }
    if (message.has_refused() || message.has_reform() || message.has_shutdown()) {
      last_word_ = std::move(message);
      changed_.notify_all();
      return;
    }
    rank = rank_;
  }
  if (message.has_assign()) {
    log_(absl::StrCat("rank ", message.assign().rank(), " of ", message.assign().world(),
                      " in group ", message.assign().group_id()));
  }
  rank->Push(std::move(message));
}

void Worker::OnEnd(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mu_);
  ended_ = true;
  end_ = status;
  changed_.notify_all();
}

}  // namespace millrace
