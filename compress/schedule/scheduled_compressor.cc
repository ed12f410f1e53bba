#include "compress/schedule/scheduled_compressor.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "compress/schedule/schedule.h"
#include "compress/schedule/scheduled_coder.h"
#include "compress/schedule/scheduled_format.h"

namespace gradwire {
namespace {

using Kind = ErrorBound::Kind;

struct Stage {
  ScheduleStage schedule;
  std::shared_ptr<const Compressor> method;
};

// Where a schedule stands in a chain.
struct Place {
  std::size_t stage = 0;
  std::size_t param = 0;
};

std::vector<Place> schedules_in(const SpecChain& chain) {
  std::vector<Place> places;
  for (std::size_t s = 0; s < chain.size(); ++s) {
    for (std::size_t p = 0; p < chain[s].params.size(); ++p) {
      if (is_schedule(chain[s].params[p].second)) places.push_back({s, p});
    }
  }
  return places;
}

// |x - s'C|^2 for s' < s: x - s'C = (1 - s'/s) x + (s'/s) (x - sC), and squares are convex.
ErrorBound weaker(const ErrorBound& a, const ErrorBound& b) {
  if (a.kind != b.kind) return {};
  ErrorBound both = a;
  both.over_ranks = a.over_ranks || b.over_ranks;
  both.scale = std::min(a.scale, b.scale);
  if (a.kind == Kind::kVariance) both.value = std::max(a.value, b.value);
  if (a.kind == Kind::kContraction) {
    both.value = std::min(a.value * both.scale / a.scale, b.value * both.scale / b.scale);
  }
  return both;
}

// What `a` and `b` disagree in, "" where they travel in one way.
std::string difference(const Traits& a, const Traits& b) {
  if (a.exchange != b.exchange) return "the way payloads combine";
  if (a.rounds != b.rounds) return "the number of rounds";
  if (a.exchange == Exchange::kAllReduceSum && a.payload_dtype != b.payload_dtype) {
    return "the payload's type";
  }
  if (a.sparse != b.sparse || a.own_feedback != b.own_feedback)
    return "the state kept for later steps";
  if (a.mean_is_average_of_own != b.mean_is_average_of_own) return "the meaning of the mean";
  return "";
}

class Scheduled final : public Compressor {
 public:
  Scheduled(std::string spec, std::string key, std::vector<Stage> stages)
      : spec_(std::move(spec)), key_(std::move(key)), stages_(std::move(stages)) {}

  std::string spec() const override { return spec_; }

  Traits traits() const override {
    Traits all = stages_.front().method->traits();
    // Slices may change their length with the step, as WireFormat::turn_to() says. Payloads that
    // are summed in the network, and votes, are laid out once.
    all.elementwise =
        all.elementwise && all.exchange == Exchange::kAllGather && all.mean_is_average_of_own;
    for (const Stage& stage : stages_) {
      const Traits traits = stage.method->traits();
      all.elementwise = all.elementwise && traits.elementwise;
      all.lossless = all.lossless && traits.lossless;
      all.unbiased = all.unbiased && traits.unbiased;
      all.needs_error_feedback = all.needs_error_feedback || traits.needs_error_feedback;
      all.stateful = all.stateful || traits.stateful;
      all.bitwise_on_all_devices = all.bitwise_on_all_devices && traits.bitwise_on_all_devices;
    }
    all.fixed_payload = false;
    return all;
  }

  ErrorBound bound(const Shape& shape) const override {
    ErrorBound bound = stages_.front().method->bound(shape);
    for (const Stage& stage : stages_) bound = weaker(bound, stage.method->bound(shape));
    return bound;
  }

  RoundKind round_kind(int round, DType dtype, int size) const override {
    RoundKind kind = stages_.front().method->round_kind(round, dtype, size);
    kind.fixed = false;
    return kind;
  }

  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int round,
                                int size) const override {
    std::size_t most = 0;
    for (const Stage& stage : stages_) {
      most = std::max(most, stage.method->max_payload_bytes(shape, dtype, round, size));
    }
    return most;
  }

  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_ASSIGN(std::unique_ptr<Coder> first, stages_.front().method->open(shape, where));
    for (const Stage& stage : stages_) GW_TRY(check_stage(stage, *first, shape, where));
    auto reopen = [stages = stages_, shape, where](std::size_t stage) {
      return stages[stage].method->open(shape, where);
    };
    return std::unique_ptr<Coder>(
        std::make_unique<ScheduledCoder>(firsts(), std::move(reopen), std::move(first)));
  }

  Result<std::unique_ptr<WireFormat>> open_slices(const Shape& shape,
                                                  const Placement& where) const override {
    if (!traits().elementwise) {
      return Status(Code::kUnsupported,
                    spec_ +
                        ": payloads change their length with the step and have no slices; use "
                        "combine=gather");
    }
    std::vector<std::unique_ptr<WireFormat>> formats;
    for (const Stage& stage : stages_) {
      GW_ASSIGN(auto format, stage.method->open_slices(shape, where));
      formats.push_back(std::move(format));
    }
    return std::unique_ptr<WireFormat>(
        std::make_unique<ScheduledFormat>(firsts(), std::move(formats)));
  }

 private:
  std::vector<std::uint64_t> firsts() const {
    std::vector<std::uint64_t> firsts;
    for (const Stage& stage : stages_) firsts.push_back(stage.schedule.first);
    return firsts;
  }

  Status refused(const Stage& stage, const std::string& what) const {
    return {Code::kInvalidArgument,
            "compressor '" + spec_ + "': " + what + " at " + key_ + "=" +
                stages_.front().schedule.value + " and at " + key_ + "=" + stage.schedule.value +
                " differ, so the key cannot follow the step; write one value"};
  }

  Status check_stage(const Stage& stage, Coder& first, const Shape& shape,
                     const Placement& where) const {
    const Compressor& begun = *stages_.front().method;
    for (int round = 0; round < begun.traits().rounds; ++round) {
      const RoundKind a = begun.round_kind(round, where.dtype, where.size);
      const RoundKind b = stage.method->round_kind(round, where.dtype, where.size);
      if (a.exchange != b.exchange || (a.reduces() && a.payload != b.payload)) {
        return refused(stage, format("round %d's payloads", round));
      }
    }
    GW_ASSIGN(const std::unique_ptr<Coder> coder, stage.method->open(shape, where));
    if (coder->takes_feedback() != first.takes_feedback()) return refused(stage, "residuals");
    const auto a = first.state();
    const auto b = coder->state();
    if (a.size() != b.size()) return refused(stage, "numbers of tensors kept between steps");
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i].name == b[i].name && a[i].tensor.shape() == b[i].tensor.shape() &&
          a[i].tensor.dtype() == b[i].tensor.dtype()) {
        continue;
      }
      return refused(stage, format("%s of '%s' and %s of '%s', kept between steps,",
                                   to_string(a[i].tensor.shape()).c_str(), a[i].name.c_str(),
                                   to_string(b[i].tensor.shape()).c_str(), b[i].name.c_str()));
    }
    return {};
  }

  std::string spec_;
  std::string key_;
  std::vector<Stage> stages_;
};

// The first stage's canonical text, with the schedule for its key.
Result<std::string> canonical(const Compressor& first, const SpecChain& given, const Place& place) {
  GW_ASSIGN(SpecChain chain, parse_spec(first.spec()));
  const auto& [key, value] = given[place.stage].params[place.param];
  auto& params = chain[place.stage].params;
  const auto own = std::find_if(params.begin(), params.end(),
                                [&key = key](const auto& param) { return param.first == key; });
  if (own == params.end()) {  // a default, which canonical texts leave out
    params.emplace_back(key, value);
  } else {
    own->second = value;
  }
  return to_string(chain);
}

}  // namespace

bool is_scheduled(const SpecChain& chain) { return !schedules_in(chain).empty(); }

Result<std::unique_ptr<Compressor>> make_scheduled(
    const SpecChain& chain,
    const std::function<Result<std::unique_ptr<Compressor>>(const SpecChain&)>& make) {
  const std::string who = "compressor '" + to_string(chain) + "': ";
  const std::vector<Place> places = schedules_in(chain);
  if (places.size() != 1) {
    return Status(Code::kInvalidArgument,
                  who + format("%zu keys follow the step (expected one)", places.size()));
  }
  const Place place = places.front();
  const auto& [key, text] = chain[place.stage].params[place.param];
  auto schedule = parse_schedule(text);
  if (!schedule.has_value()) return schedule.error().with_context(who + "key '" + key + "'");
  std::vector<Stage> stages;
  for (const ScheduleStage& stage : schedule.value()) {
    SpecChain one = chain;
    one[place.stage].params[place.param].second = stage.value;
    GW_ASSIGN(std::shared_ptr<const Compressor> method, make(one));
    stages.push_back({stage, std::move(method)});
    const std::string other =
        difference(stages.front().method->traits(), stages.back().method->traits());
    if (!other.empty()) {
      return Status(Code::kInvalidArgument,
                    who + other + " differs between " + key + "=" + stages.front().schedule.value +
                        " and " + key + "=" + stage.value + ", so the key cannot follow the step");
    }
  }
  GW_ASSIGN(std::string spec, canonical(*stages.front().method, chain, place));
  return std::unique_ptr<Compressor>(
      std::make_unique<Scheduled>(std::move(spec), key, std::move(stages)));
}

}  // namespace gradwire
