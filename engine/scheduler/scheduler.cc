#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"

namespace millrace {
namespace {

int32_t PagesFor(int32_t tokens, int32_t page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

bool ArrivesBefore(const Sequence* a, const Sequence* b) { return a->arrival < b->arrival; }

}  // namespace

absl::Status SchedulerConfig::Validate() const {
  const std::pair<const char*, int32_t> positive[] = {
      {"page_tokens", page_tokens},
      {"max_num_seqs", max_num_seqs},
      {"max_model_len", max_model_len},
      {"max_num_batched_tokens", max_num_batched_tokens},
      {"max_waiting", max_waiting},
      {"num_pages", num_pages},
      {"data_parallel_size", data_parallel_size}};
  for (const auto& [name, value] : positive) {
    if (value <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("scheduler: ", name, " = ", value, ", must be positive"));
    }
  }
  if (max_chunk_tokens < 0) {
    return absl::InvalidArgumentError("scheduler: max_chunk_tokens must not be negative");
  }
  const int32_t needed = PagesFor(max_model_len, page_tokens);
  if (num_pages < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("scheduler: the cache holds ", static_cast<int64_t>(num_pages) * page_tokens,
                     " tokens, but --max-model-len is ", max_model_len,
                     ": lower --max-model-len or give the cache more memory"));
  }
  return absl::OkStatus();
}

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(config), pool_(config.num_pages, [this](PageId page) { index_.Forget(page); }) {
  for (int32_t slot = config.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

Sequence* Scheduler::Find(SequenceId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

absl::Status Scheduler::Admit(Request request) {
  const auto prompt_size = static_cast<int64_t>(request.prompt.size());
  if (prompt_size == 0) return absl::InvalidArgumentError("the prompt holds no token");
  if (request.sampling.max_tokens < 1) {
    return absl::InvalidArgumentError("max_tokens must be at least 1");
  }
  if (prompt_size + request.sampling.max_tokens > config_.max_model_len) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a prompt of ", prompt_size, " tokens and max_tokens ", request.sampling.max_tokens,
        " exceed the context of ", config_.max_model_len, " tokens"));
  }
  if (sequences_.contains(request.id)) {
    return absl::AlreadyExistsError(absl::StrCat("sequence ", request.id, " is live"));
  }
  if (static_cast<int32_t>(waiting_.size()) >= config_.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full: ", waiting_.size(), " sequences are waiting"));
  }
  auto seq = std::make_unique<Sequence>();
  seq->tokens = request.prompt;
  if (request.sampling.num_prompt_logprobs >= 0) seq->prompt_scores.resize(prompt_size - 1);
  seq->prompt_logits.resize(request.logits_positions.size());
  seq->request = std::move(request);
  seq->arrival = next_arrival_++;
  waiting_.push_back(seq.get());
  const SequenceId id = seq->request.id;
  sequences_.emplace(id, std::move(seq));
  return absl::OkStatus();
}

void Scheduler::ReleaseResources(Sequence& seq) {
  if (seq.slot < 0) return;
  AddPending(seq, -1);
  seq.pending_end = seq.published_pages;
  std::reverse(seq.pages.begin(), seq.pages.end());  // a prefix outlives what follows it
  pool_.Release(seq.pages);
  seq.pages.clear();
  seq.published_pages = 0;
  free_slots_.push_back(seq.slot);
  seq.slot = -1;
  std::erase(running_, &seq);
}

void Scheduler::Finish(SequenceId id, FinishReason reason, absl::Status status) {
  Sequence* seq = Find(id);
  if (seq == nullptr) return;
  if (seq->slot < 0) std::erase(waiting_, seq);
  ReleaseResources(*seq);
  FinishEvent event{.id = id, .reason = reason, .status = std::move(status)};
  if (reason == FinishReason::kStop && seq->output_size() > 0) {
    const auto& stops = seq->request.sampling.stop_token_ids;
    const int32_t last = seq->tokens.back();
    if (std::find(stops.begin(), stops.end(), last) != stops.end()) event.matched_token = last;
  }
  events_.emplace_back(std::move(event));
  sequences_.erase(id);
}

void Scheduler::FinishExpired(absl::Time now) {
  std::vector<SequenceId> expired;
  for (const auto& [id, seq] : sequences_) {
    if (seq->request.deadline < now) expired.push_back(id);
  }
  std::sort(expired.begin(), expired.end());
  for (SequenceId id : expired) {
    Finish(id, FinishReason::kAbort, absl::DeadlineExceededError("the client's deadline passed"));
  }
}

std::optional<StepPlan> Scheduler::Next() {
  StepPlan plan;
  int32_t budget = config_.max_num_batched_tokens;
  const int64_t preemptions = counters_.preemptions;
  ScheduleRunning(plan, budget);
  if (counters_.preemptions == preemptions) ScheduleWaiting(plan, budget);
  if (plan.sequences.empty()) return std::nullopt;
  plan.step = next_step_++;
  launched_.back().step = plan.step;
  return plan;
}

void Scheduler::ScheduleRunning(StepPlan& plan, int32_t& budget) {
  launched_.emplace_back();
  // Decoding sequences first, so that a long prompt delays nobody's next token.
  for (const bool decode : {true, false}) {
    std::vector<Sequence*> order;
    for (Sequence* seq : running_) {
      if ((seq->schedulable() == 1) == decode) order.push_back(seq);
    }
    for (Sequence* seq : order) {
      if (budget == 0) break;
      if (seq->slot < 0 || seq->schedulable() == 0) continue;
      while (!PlanSequence(*seq, plan, budget)) {
        Sequence* victim = nullptr;
        for (Sequence* other : running_) {
          if (!ArrivesBefore(other, seq) && other->planned_step != next_step_) victim = other;
        }
        if (victim == nullptr) break;
        Preempt(*victim);
        if (victim == seq) break;
      }
    }
  }
  if (plan.sequences.empty()) launched_.pop_back();
}

void Scheduler::ScheduleWaiting(StepPlan& plan, int32_t& budget) {
  const bool was_empty = plan.sequences.empty();
  if (was_empty) launched_.emplace_back();
  for (auto it = waiting_.begin(); it != waiting_.end() && budget > 0 && !free_slots_.empty();) {
    Sequence& seq = **it;
    if (seq.pending_samples > 0 || WantsPendingPage(seq)) {
      ++it;
      continue;
    }
    if (!Start(seq)) break;
    it = waiting_.erase(it);
    // Start() made sure that the pages of all known tokens are there.
    MR_CHECK(PlanSequence(seq, plan, budget));
  }
  if (plan.sequences.empty()) launched_.pop_back();
}

void Scheduler::ExtendKeys(const std::string& salt, absl::Span<const int32_t> tokens,
                           int32_t num_pages, std::vector<PageKey>& keys) const {
  while (static_cast<int32_t>(keys.size()) < num_pages) {
    const PageKey parent = keys.empty() ? RootKey(salt) : keys.back();
    const size_t begin = keys.size() * config_.page_tokens;
    keys.push_back(ChildKey(parent, tokens.subspan(begin, config_.page_tokens)));
  }
}

bool Scheduler::WantsPendingPage(Sequence& seq) {
  if (!config_.enable_prefix_caching || seq.needs_prompt_logits()) return false;
  ExtendKeys(seq, (seq.size() - 1) / config_.page_tokens);
  const size_t known = index_.Match(seq.keys).size();
  return known < seq.keys.size() && pending_keys_.contains(seq.keys[known]);
}

std::vector<PageKey> Scheduler::PromptKeys(const Request& request) const {
  std::vector<PageKey> keys;
  if (!config_.enable_prefix_caching || request.wants_prompt_logits()) return keys;
  const auto tokens = static_cast<int32_t>(request.prompt.size());
  ExtendKeys(request.cache_salt, request.prompt, (tokens - 1) / config_.page_tokens, keys);
  return keys;
}

int32_t Scheduler::CachedTokens(absl::Span<const PageKey> prompt_keys) const {
  return static_cast<int32_t>(index_.Match(prompt_keys).size()) * config_.page_tokens;
}

bool Scheduler::Start(Sequence& seq) {
  std::vector<PageId> matched;
  // The last token is always computed, for its logits; so at most the pages before it are reused.
  const int32_t full_pages = (seq.size() - 1) / config_.page_tokens;
  if (config_.enable_prefix_caching) {
    ExtendKeys(seq, full_pages);
    if (!seq.needs_prompt_logits()) {
      matched = index_.Match(absl::MakeConstSpan(seq.keys).subspan(0, full_pages));
    }
  }
  for (PageId page : matched) pool_.Retain(page);
  const auto num_matched = static_cast<int32_t>(matched.size());
  if (PagesFor(seq.size(), config_.page_tokens) - num_matched > pool_.available()) {
    std::reverse(matched.begin(), matched.end());
    pool_.Release(matched);
    return false;
  }
  seq.pages = std::move(matched);
  seq.published_pages = num_matched;
  seq.scheduled = num_matched * config_.page_tokens;
  if (seq.epoch == 0) {
    seq.cached_tokens = seq.scheduled;
    counters_.prompt_tokens += seq.prompt_size();
    if (config_.enable_prefix_caching) {
      counters_.prefix_queries += seq.prompt_size();
      counters_.prefix_hits += seq.scheduled;
    }
  }
  ++seq.epoch;
  seq.fresh = true;
  seq.slot = free_slots_.back();
  free_slots_.pop_back();
  seq.pending_end = std::max(num_matched, std::min<int32_t>(full_pages, seq.keys.size()));
  AddPending(seq, 1);
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &seq, ArrivesBefore), &seq);
  return true;
}

void Scheduler::AddPending(const Sequence& seq, int32_t delta) {
  for (int32_t i = seq.published_pages; i < seq.pending_end; ++i) {
    const auto it = pending_keys_.try_emplace(seq.keys[i], 0).first;
    it->second += delta;
    if (it->second == 0) pending_keys_.erase(it);
  }
}

void Scheduler::Preempt(Sequence& seq) {
  ReleaseResources(seq);
  seq.scheduled = 0;
  ++counters_.preemptions;
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), &seq, ArrivesBefore), &seq);
}

bool Scheduler::PlanSequence(Sequence& seq, StepPlan& plan, int32_t& budget) {
  int32_t num_tokens = std::min(seq.schedulable(), budget);
  if (config_.max_chunk_tokens > 0) num_tokens = std::min(num_tokens, config_.max_chunk_tokens);
  SequencePlan out{.slot = seq.slot};
  const int32_t missing = PagesFor(seq.scheduled + num_tokens, config_.page_tokens) -
                          static_cast<int32_t>(seq.pages.size());
  absl::StatusOr<std::vector<PageId>> pages = pool_.Allocate(std::max(missing, 0));
  if (!pages.ok()) return false;
  seq.pages.insert(seq.pages.end(), pages->begin(), pages->end());
  out.new_pages = seq.fresh ? seq.pages : *std::move(pages);
  FillPlan(seq, num_tokens, out);
  launched_.back().sequences.push_back({.id = seq.request.id,
                                        .epoch = seq.epoch,
                                        .position = seq.scheduled,
                                        .num_tokens = num_tokens,
                                        .sampled = out.sample});
  seq.scheduled += num_tokens;
  seq.planned_step = next_step_;
  if (out.sample) ++seq.pending_samples;
  budget -= num_tokens;
  plan.sequences.push_back(std::move(out));
  return true;
}

void Scheduler::FillPlan(Sequence& seq, int32_t num_tokens, SequencePlan& out) {
  out.position = seq.scheduled;
  if (seq.fresh) {
    SlotInit init{.sampling = seq.request.sampling,
                  .prompt_tokens = seq.prompt_size(),
                  .output_tokens = seq.output_size()};
    if (init.sampling.has_penalties()) init.history = seq.tokens;
    out.init = std::move(init);
    seq.fresh = false;
  }
  if (seq.scheduled < seq.size()) {
    const auto begin = seq.tokens.begin() + seq.scheduled;
    out.tokens.assign(begin, begin + num_tokens);
  }
  const int32_t end = seq.scheduled + num_tokens;
  out.sample = end == seq.size() + seq.pending_samples;
  if (!seq.needs_prompt_logits()) return;
  if (seq.request.sampling.num_prompt_logprobs >= 0) {
    out.prompt_logprobs = true;
    for (int32_t p = seq.scheduled; p < end; ++p) {
      out.score_targets.push_back(p + 1 < seq.prompt_size() ? seq.tokens[p + 1] : -1);
    }
  }
  for (int32_t p : seq.request.logits_positions) {
    if (p >= seq.scheduled && p < end) out.logits_rows.push_back(p - seq.scheduled);
  }
}

void Scheduler::Commit(const StepResult& result) {
  MR_CHECK(!launched_.empty());
  const LaunchedStep step = std::move(launched_.front());
  launched_.pop_front();
  MR_CHECK_EQ(step.step, result.step);
  MR_CHECK_EQ(step.sequences.size(), result.sequences.size());
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    CommitSequence(step.sequences[i], result.sequences[i]);
  }
}

void Scheduler::CommitSequence(const LaunchedSequence& launched, const SequenceResult& result) {
  Sequence* seq = Find(launched.id);
  if (seq == nullptr) return;  // ended since: its surplus token is dropped
  if (launched.sampled) --seq->pending_samples;
  if (result.numeric_fault) {
    ++counters_.numeric_faults;
    Finish(launched.id, FinishReason::kError,
           absl::InternalError("NUMERIC_FAULT: the model produced NaN or Inf for this sequence"));
    return;
  }
  StorePromptRows(*seq, launched, result);
  if (launched.epoch == seq->epoch && seq->slot >= 0) {
    PublishPages(*seq, launched.position + launched.num_tokens);
  }
  if (!launched.sampled) return;
  seq->tokens.push_back(result.token);
  ++counters_.generated_tokens;
  TokenEvent event{.id = launched.id, .token = result.token, .logprobs = result.logprobs};
  event.cached_tokens = seq->cached_tokens;
  if (seq->output_size() == 1) {
    event.prompt_logprobs = std::move(seq->prompt_scores);
    event.prompt_logits = std::move(seq->prompt_logits);
  }
  events_.emplace_back(std::move(event));
  const auto& stops = seq->request.sampling.stop_token_ids;
  if (seq->output_size() > seq->request.sampling.min_tokens &&
      std::find(stops.begin(), stops.end(), result.token) != stops.end()) {
    Finish(launched.id, FinishReason::kStop);
  } else if (seq->output_size() >= seq->request.sampling.max_tokens) {
    Finish(launched.id, FinishReason::kLength);
  }
}

void Scheduler::StorePromptRows(Sequence& seq, const LaunchedSequence& launched,
                                const SequenceResult& result) {
  if (seq.output_size() > 0) return;
  // By position, so that rows computed again after a preemption land where they were.
  size_t next = 0;
  for (int32_t p = launched.position; next < result.prompt_logprobs.size(); ++p) {
    seq.prompt_scores[static_cast<size_t>(p)] = result.prompt_logprobs[next++];
  }
  next = 0;
  const auto& positions = seq.request.logits_positions;
  for (size_t i = 0; i < positions.size() && next < result.logits.size(); ++i) {
    if (positions[i] < launched.position) continue;
    seq.prompt_logits[i] = result.logits[next++];
  }
}

void Scheduler::PublishPages(Sequence& seq, int32_t computed_tokens) {
  if (!config_.enable_prefix_caching) return;
  const int32_t full = std::min(computed_tokens, seq.size()) / config_.page_tokens;
  for (; seq.published_pages < full; ++seq.published_pages) {
    const int32_t i = seq.published_pages;
    ExtendKeys(seq, i + 1);
    if (i < seq.pending_end) {
      const auto it = pending_keys_.find(seq.keys[i]);
      if (it != pending_keys_.end() && --it->second == 0) pending_keys_.erase(it);
    }
    if (index_.Publish(seq.keys[i], seq.pages[i])) pool_.SetPublished(seq.pages[i], true);
  }
}

void Scheduler::FailAll(const absl::Status& status) {
  launched_.clear();
  std::vector<Sequence*> live;
  for (const auto& [id, seq] : sequences_) live.push_back(seq.get());
  std::sort(live.begin(), live.end(), ArrivesBefore);
  for (Sequence* seq : live) Finish(seq->request.id, FinishReason::kError, status);
  FlushPrefixCache();
}

std::vector<SchedulerEvent> Scheduler::TakeEvents() { return std::exchange(events_, {}); }

void Scheduler::FlushPrefixCache() {
  for (PageId page : index_.Pages()) {
    index_.Forget(page);
    pool_.SetPublished(page, false);
  }
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats s = counters_;
  s.running = static_cast<int32_t>(running_.size());
  s.waiting = static_cast<int32_t>(waiting_.size());
  s.pages_total = pool_.total();
  s.pages_free = pool_.free();
  s.pages_used = pool_.used();
  s.pages_cached = pool_.cached();
  for (const Sequence* seq : waiting_) s.waiting_tokens += seq->size();
  return s;
}

absl::Status Scheduler::CheckIntegrity() const {
  if (pool_.free() + pool_.used() + pool_.cached() != pool_.total()) {
    return absl::InternalError(absl::StrCat("pages: ", pool_.free(), " free + ", pool_.used(),
                                            " used + ", pool_.cached(),
                                            " cached != ", pool_.total()));
  }
  if (running_.size() + waiting_.size() != sequences_.size()) {
    return absl::InternalError("running and waiting sequences are not the live ones");
  }
  if (running_.size() + free_slots_.size() != static_cast<size_t>(config_.max_num_seqs)) {
    return absl::InternalError("running sequences and free slots are not all slots");
  }
  if (running_.empty() && (pool_.used() != 0 || !pending_keys_.empty())) {
    return absl::InternalError("nothing runs, but pages are used or promised");
  }
  return absl::OkStatus();
}

}  // namespace millrace
