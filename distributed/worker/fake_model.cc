#include "distributed/worker/fake_model.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int64_t kBytesPerPage = 4096;

class FakeModel final : public RankModel {
 public:
  FakeModel(const FakeModelOptions& options, const RunnerConfig& config, Communicator& comm)
      : options_(options), config_(config), comm_(comm) {
    slots_.resize(static_cast<size_t>(config.max_num_seqs));
  }

  absl::StatusOr<RankMemory> Memory() override {
    return RankMemory{.weight_bytes = 1 << 20,
                      .workspace_bytes = 1 << 20,
                      .bytes_per_page = kBytesPerPage,
                      .available_bytes = options_.available_bytes};
  }
  int32_t VocabSize() const override { return options_.vocab_size; }

  absl::Status AllocateCache(int32_t num_pages) override {
    cache_.assign(static_cast<size_t>(num_pages) * static_cast<size_t>(config_.page_tokens), -1);
    return absl::OkStatus();
  }

  // Does the step at once.
  absl::Status Launch(const StepPlan& plan) override {
    ASSIGN_OR_RETURN(StepResult result, Step(plan));
    done_.push_back(std::move(result));
    return absl::OkStatus();
  }
  int InFlight() const override { return static_cast<int>(done_.size()); }
  absl::StatusOr<bool> Ready() override { return true; }
  absl::StatusOr<StepResult> Collect() override {
    StepResult result = std::move(done_.front());
    done_.pop_front();
    return result;
  }

 private:
  struct Slot {
    SamplingParams sampling;
    std::vector<int32_t> pages;
    int32_t last_token = -1;
  };

  absl::StatusOr<StepResult> Step(const StepPlan& plan) {
    if (options_.step_time > absl::ZeroDuration()) absl::SleepFor(options_.step_time);
    if (options_.fail_step == plan.step && options_.fail_rank == comm_.rank()) {
      return absl::InternalError("the op that was told to fail");
    }
    float joined = 1;
    RETURN_IF_ERROR(comm_.AllReduceSum(TensorView::Of(&joined, DType::kF32, {1}), {}));
    if (joined != static_cast<float>(comm_.size())) return absl::InternalError("a wrong sum");
    StepResult result = {.step = plan.step, .sequences = {}};
    for (const SequencePlan& sequence : plan.sequences) {
      ASSIGN_OR_RETURN(SequenceResult one, Run(sequence));
      result.sequences.push_back(std::move(one));
    }
    return result;
  }

  absl::StatusOr<SequenceResult> Run(const SequencePlan& plan) {
    Slot& slot = slots_[static_cast<size_t>(plan.slot)];
    if (plan.init.has_value()) slot = Slot{.sampling = plan.init->sampling, .pages = {}};
    slot.pages.insert(slot.pages.end(), plan.new_pages.begin(), plan.new_pages.end());
    for (int32_t i = 0; i < plan.num_tokens(); ++i) {
      const int32_t token =
          plan.tokens.empty() ? slot.last_token : plan.tokens[static_cast<size_t>(i)];
      RETURN_IF_ERROR(Write(slot, plan.position + i, token));
    }
    SequenceResult result;
    result.slot = plan.slot;
    const int32_t length = plan.position + plan.num_tokens();
    ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, Read(slot, length));
    if (plan.sample) {
      result.token = FakeNextToken(tokens, options_.vocab_size);
      slot.last_token = result.token;
      if (slot.sampling.num_logprobs >= 0) {
        result.logprobs = Score(result.token, slot.sampling.num_logprobs);
      }
    }
    for (const int32_t target : plan.score_targets) {
      if (target < 0) continue;
      result.prompt_logprobs.push_back(Score(target, slot.sampling.num_prompt_logprobs));
    }
    for (const int32_t row : plan.logits_rows) {
      std::vector<float> logits(static_cast<size_t>(options_.vocab_size), -10.0f);
      const absl::Span<const int32_t> seen(tokens.data(),
                                           static_cast<size_t>(plan.position + row) + 1);
      logits[static_cast<size_t>(FakeNextToken(seen, options_.vocab_size))] = 10.0f;
      result.logits.push_back(std::move(logits));
    }
    return result;
  }

  absl::StatusOr<int32_t*> Row(const Slot& slot, int32_t position) {
    const size_t page = static_cast<size_t>(position / config_.page_tokens);
    if (page >= slot.pages.size()) {
      return absl::InternalError(absl::StrCat("no page for position ", position));
    }
    const int64_t row =
        int64_t{slot.pages[page]} * config_.page_tokens + position % config_.page_tokens;
    if (row >= static_cast<int64_t>(cache_.size())) return absl::InternalError("no such page");
    return &cache_[static_cast<size_t>(row)];
  }

  absl::Status Write(const Slot& slot, int32_t position, int32_t token) {
    if (token < 0) return absl::InternalError("a step without a token to start from");
    ASSIGN_OR_RETURN(int32_t* const row, Row(slot, position));
    *row = token;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<int32_t>> Read(const Slot& slot, int32_t length) {
    std::vector<int32_t> tokens;
    tokens.reserve(static_cast<size_t>(length));
    for (int32_t i = 0; i < length; ++i) {
      ASSIGN_OR_RETURN(const int32_t* const row, Row(slot, i));
      tokens.push_back(*row);
    }
    return tokens;
  }

  ScoredToken Score(int32_t token, int32_t alternatives) const {
    ScoredToken scored = {{token, -1.0f}, {}};
    for (int32_t i = 0; i < std::min(alternatives, options_.vocab_size); ++i) {
      scored.top.push_back({(token + i) % options_.vocab_size, -1.0f - static_cast<float>(i)});
    }
    return scored;
  }

  const FakeModelOptions options_;
  const RunnerConfig config_;
  Communicator& comm_;
  std::vector<Slot> slots_;
  std::vector<int32_t> cache_;  // [pages * page_tokens]
  std::deque<StepResult> done_;
};

}  // namespace

int32_t FakeNextToken(absl::Span<const int32_t> tokens, int32_t vocab_size) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(static_cast<uint32_t>(token))) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  return static_cast<int32_t>(hash % static_cast<uint64_t>(vocab_size));
}

absl::StatusOr<std::unique_ptr<RankModel>> FakeModelFactory::Load(const RunnerConfig& config,
                                                                  Device&, const RankGroups& groups,
                                                                  const Progress& progress) {
  constexpr int64_t kPieces = 10;
  for (int64_t i = 1; i <= kPieces; ++i) {
    absl::SleepFor(options_.load_time / kPieces);
    if (progress) progress(i << 20, kPieces << 20);
  }
  if (!options_.load_error.ok() && groups.world.rank() == options_.fail_rank) {
    return options_.load_error;
  }
  return std::make_unique<FakeModel>(options_, config, groups.world);
}

}  // namespace millrace
