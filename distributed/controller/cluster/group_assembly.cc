#include "distributed/controller/cluster/group_assembly.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "distributed/controller/cluster/page_sizing.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {

std::string Member::Name() const { return absl::StrCat(hello.host(), ":", hello.pid()); }

GroupAssembly::GroupAssembly(const WorkerHubOptions& options, std::string id,
                             std::vector<Member> members)
    : options_(options), members_(std::move(members)), stage_begin_(absl::Now()) {
  MR_CHECK_EQ(static_cast<int32_t>(members_.size()), options_.world);
  const auto first_of = [this](const std::string& host) {
    return std::find_if(members_.begin(), members_.end(),
                        [&](const Member& member) { return member.hello.host() == host; }) -
           members_.begin();
  };
  std::vector<std::pair<std::ptrdiff_t, size_t>> order;
  for (size_t i = 0; i < members_.size(); ++i) {
    order.emplace_back(first_of(members_[i].hello.host()), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<Member> sorted;
  for (const auto& [host, i] : order) sorted.push_back(members_[i]);
  members_ = std::move(sorted);
  states_.resize(members_.size());
  info_.id = std::move(id);
  for (int32_t rank = 0; rank < options_.world; ++rank) {
    const worker::Hello& hello = members_[static_cast<size_t>(rank)].hello;
    info_.ranks.push_back({.rank = rank,
                           .host = hello.host(),
                           .pid = hello.pid(),
                           .device = hello.device_description(),
                           .memory_id = hello.memory_id(),
                           .transport = "",
                           .memory = {}});
  }
  Assign();
}

void GroupAssembly::Assign() {
  for (int32_t rank = 0; rank < options_.world; ++rank) {
    worker::ControllerMessage message;
    worker::Assign* assign = message.mutable_assign();
    assign->set_rank(rank);
    assign->set_world(options_.world);
    assign->set_group_id(info_.id);
    *assign->mutable_config() = ToProto(options_.config);
    assign->set_model_fingerprint(options_.model_fingerprint);
    assign->set_self_test_timeout_s(absl::ToDoubleSeconds(options_.self_test_timeout));
    assign->set_step_timeout_s(absl::ToDoubleSeconds(options_.step_timeout));
    assign->set_disable_custom_all_reduce(!options_.custom_all_reduce);
    members_[static_cast<size_t>(rank)].session->Send(message);
  }
}

int32_t GroupAssembly::RankOf(const HubSession& session) const {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].session.get() == &session) return static_cast<int32_t>(rank);
  }
  return -1;
}

std::string GroupAssembly::NameOf(int32_t rank) const {
  return absl::StrCat("rank ", rank, " (", members_[static_cast<size_t>(rank)].Name(), ")");
}

void GroupAssembly::SendToAll(const worker::ControllerMessage& message) {
  for (const Member& member : members_) member.session->Send(message);
}

absl::Status GroupAssembly::OnMessage(int32_t rank, const worker::WorkerMessage& message) {
  switch (message.kind_case()) {
    case worker::WorkerMessage::kStoreSet:
      return OnStoreSet(message.store_set());
    case worker::WorkerMessage::kStoreGet:
      return OnStoreGet(rank, message.store_get());
    case worker::WorkerMessage::kSelfTested:
      info_.ranks[static_cast<size_t>(rank)].transport =
          message.self_tested().transport().substr(0, 256);
      return Advance(rank, Stage::kSelfTest);
    case worker::WorkerMessage::kLoadProgress:
      state(rank).total_bytes = std::max<int64_t>(0, message.load_progress().bytes_total());
      state(rank).loaded_bytes =
          std::clamp<int64_t>(message.load_progress().bytes_done(), 0, state(rank).total_bytes);
      return absl::OkStatus();
    case worker::WorkerMessage::kCaptureProgress:
      state(rank).total_graphs = std::max(0, message.capture_progress().graphs_total());
      state(rank).captured_graphs =
          std::clamp(message.capture_progress().graphs_done(), 0, state(rank).total_graphs);
      return absl::OkStatus();
    case worker::WorkerMessage::kLoaded:
      return OnLoaded(rank, message.loaded());
    case worker::WorkerMessage::kReady:
      return Advance(rank, Stage::kCache);
    case worker::WorkerMessage::kStepDone:
      if (steps_ == nullptr) return absl::InvalidArgumentError("an answer to no step");
      return steps_->OnStepDone(rank, message.step_done());
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("an unexpected message, kind ", static_cast<int>(message.kind_case())));
  }
}

void GroupAssembly::OnHeartbeat(int32_t rank, const worker::Heartbeat& heartbeat) {
  state(rank).heartbeat = heartbeat;
}

absl::Status GroupAssembly::OnStoreSet(const worker::StoreSet& message) {
  ASSIGN_OR_RETURN(const std::vector<RendezvousStore::Waiter> waiters,
                   store_.Set(message.key(), message.value()));
  for (const RendezvousStore::Waiter& waiter : waiters) {
    worker::ControllerMessage answer;
    answer.mutable_store_value()->set_id(waiter.id);
    answer.mutable_store_value()->set_value(message.value());
    members_[static_cast<size_t>(waiter.rank)].session->Send(answer);
  }
  return absl::OkStatus();
}

absl::Status GroupAssembly::OnStoreGet(int32_t rank, const worker::StoreGet& message) {
  ASSIGN_OR_RETURN(const std::optional<std::string> value,
                   store_.Get(message.key(), {.rank = rank, .id = message.id()}));
  if (!value.has_value()) return absl::OkStatus();
  worker::ControllerMessage answer;
  answer.mutable_store_value()->set_id(message.id());
  answer.mutable_store_value()->set_value(*value);
  members_[static_cast<size_t>(rank)].session->Send(answer);
  return absl::OkStatus();
}

absl::Status GroupAssembly::OnLoaded(int32_t rank, const worker::Loaded& message) {
  ASSIGN_OR_RETURN(info_.ranks[static_cast<size_t>(rank)].memory, FromProto(message));
  return Advance(rank, Stage::kLoading);
}

absl::Status GroupAssembly::Advance(int32_t rank, Stage stage) {
  if (stage != stage_ || state(rank).done != stage) {
    return absl::InvalidArgumentError("a message of another stage");
  }
  state(rank).done = static_cast<Stage>(static_cast<int>(stage) + 1);
  for (const RankState& other : states_) {
    if (other.done == stage) return absl::OkStatus();
  }
  stage_ = state(rank).done;
  stage_begin_ = absl::Now();
  return BeginStage();
}

absl::Status GroupAssembly::BeginStage() {
  switch (stage_) {
    case Stage::kLoading: {
      worker::ControllerMessage message;
      message.mutable_load();
      SendToAll(message);
      return absl::OkStatus();
    }
    case Stage::kCache:
      return ConfigureCache();
    case Stage::kReady: {
      std::vector<std::shared_ptr<HubSession>> sessions;
      for (const Member& member : members_) sessions.push_back(member.session);
      steps_ = std::make_shared<GroupSteps>(
          options_.world, StepLimits::Of(options_.config, info_.num_pages, options_.vocab_size),
          [sessions](int32_t rank, std::shared_ptr<const std::string> bytes) {
            sessions[static_cast<size_t>(rank)]->Send(std::move(bytes));
          });
      return absl::OkStatus();
    }
    case Stage::kSelfTest:
      break;
  }
  return absl::OkStatus();
}

absl::Status GroupAssembly::ConfigureCache() {
  std::vector<RankRoom> rooms;
  for (const RankInfo& rank : info_.ranks) {
    rooms.push_back({rank.host, rank.memory_id, rank.memory});
  }
  PageRequest request = PageRequestFor(options_.config);
  request.num_pages = options_.num_pages;
  request.kv_cache_memory_bytes = options_.kv_cache_memory_bytes;
  request.memory_utilization = options_.memory_utilization;
  ASSIGN_OR_RETURN(info_.num_pages, SizePages(rooms, request));
  worker::ControllerMessage message;
  message.mutable_configure()->set_num_pages(info_.num_pages);
  SendToAll(message);
  return absl::OkStatus();
}

int64_t GroupAssembly::loaded_bytes() const {
  int64_t sum = 0;
  for (const RankState& state : states_) sum += state.loaded_bytes;
  return sum;
}

int64_t GroupAssembly::total_bytes() const {
  int64_t sum = 0;
  for (const RankState& state : states_) sum += state.total_bytes;
  return sum;
}

int32_t GroupAssembly::captured_graphs() const {
  int32_t least = total_graphs();
  for (const RankState& state : states_) least = std::min(least, state.captured_graphs);
  return least;
}

int32_t GroupAssembly::total_graphs() const {
  int32_t most = 0;
  for (const RankState& state : states_) most = std::max(most, state.total_graphs);
  return most;
}

absl::Status GroupAssembly::CheckTime(absl::Time now, int32_t* rank) const {
  std::vector<std::string> late;
  if (stage_ == Stage::kSelfTest && now - stage_begin_ > options_.self_test_timeout) {
    for (int32_t r = 0; r < options_.world; ++r) {
      if (states_[static_cast<size_t>(r)].done != Stage::kSelfTest) continue;
      if (late.empty()) *rank = r;
      late.push_back(NameOf(r));
    }
    return absl::DeadlineExceededError(absl::StrCat(
        "the collective self-test did not pass within ",
        absl::FormatDuration(options_.self_test_timeout),
        "; not through: ", absl::StrJoin(late, ", "), ". Can the workers reach each other?"));
  }
  if (stage_ != Stage::kReady) return absl::OkStatus();
  const std::optional<GroupSteps::Overdue> overdue =
      steps_->CheckOverdue(now, options_.step_timeout);
  if (!overdue.has_value()) return absl::OkStatus();
  *rank = overdue->ranks.front();
  // Whoever waits in a collective waits for somebody who does not.
  for (const int32_t r : overdue->ranks) {
    const std::string& where = states_[static_cast<size_t>(r)].heartbeat.collective();
    late.push_back(
        absl::StrCat(NameOf(r), where.empty() ? " computes" : " waits in ", where.substr(0, 64)));
  }
  for (const int32_t r : overdue->ranks) {
    if (!states_[static_cast<size_t>(r)].heartbeat.collective().empty()) continue;
    *rank = r;
    break;
  }
  return absl::UnavailableError(absl::StrCat("step ", overdue->step, " did not end within ",
                                             absl::FormatDuration(options_.step_timeout), ": ",
                                             absl::StrJoin(late, ", ")));
}

}  // namespace millrace
