#include "aggregate/plan/predicted_held.h"

#include <algorithm>
#include <string>
#include <vector>

#include "aggregate/narrow/in_work.h"
#include "aggregate/shards.h"
#include "compress/error_feedback/stored_residual.h"

namespace gradwire {
namespace {

std::uint64_t count_of(std::int64_t elems) { return static_cast<std::uint64_t>(elems); }

std::uint64_t element_bytes(const Parameter& parameter) { return size_of(parameter.coded_dtype()); }

// As StoredResidual::state().
std::uint64_t residual_bytes(const FeedbackOptions& feedback, std::int64_t count,
                             std::uint64_t element) {
  const std::uint64_t elems = count_of(count);
  switch (feedback.storage) {
    case ResidualStorage::kBf16: return 2 * elems;
    case ResidualStorage::kInt8:
      return elems + sizeof(float) * ((elems + kResidualBlock - 1) / kResidualBlock);
    case ResidualStorage::kFull: break;
  }
  return element * elems;
}

// What error feedback around a coder, or beside slices, keeps of `count` elements. Both ef21 have
// `of` tensors, and one more where they average.
std::uint64_t feedback_bytes(const Parameter& parameter, std::int64_t count, std::uint64_t of) {
  const FeedbackOptions& feedback = parameter.feedback;
  const std::uint64_t whole = element_bytes(parameter) * count_of(count);
  switch (feedback.kind) {
    case FeedbackKind::kNone: return 0;
    case FeedbackKind::kEf21: return of * whole;
    case FeedbackKind::kEf21Sgdm: return (feedback.eta == 1 ? of : of + 1) * whole;
    case FeedbackKind::kEf14:
    case FeedbackKind::kLoco: break;
  }
  return residual_bytes(feedback, count, element_bytes(parameter));
}

bool is_running(const Parameter& parameter) {
  return parameter.feedback.kind == FeedbackKind::kEf21 ||
         parameter.feedback.kind == FeedbackKind::kEf21Sgdm;
}

class HeldOf {
 public:
  HeldOf(std::span<const Parameter> parameters, const HeldQuestion& question)
      : parameters_(parameters), q_(question) {}

  PredictedHeld all() {
    for (const BucketPlan& plan : plan_buckets(parameters_, q_.bucket_bytes, q_.size)) {
      Members members;
      for (const int index : plan.parameters) {
        members.push_back(&parameters_[static_cast<std::size_t>(index)]);
      }
      if (plan.warmup_steps > 0 || plan.path == Path::kDense) add_dense(plan, members);
      if (plan.path != Path::kDense) add_coded(plan.path, members);
    }
    add(widened_.most());
    return held_;
  }

 private:
  void add(std::uint64_t bytes) { held_.bytes += bytes; }

  std::int64_t shard(const Parameter& parameter, int rank) const {
    return shard_of(parameter, q_.size, rank).size();
  }
  std::uint64_t packed(const Parameter& parameter, std::int64_t elems) const {
    return parameter.compressor->max_payload_bytes(Shape::vector(elems), parameter.coded_dtype(), 0,
                                                   q_.size);
  }

  // Those of a bucket that lie one after another are summed in place; else, and where ranks have
  // shards, they are packed in a buffer, which lean shards give back.
  void add_dense(const BucketPlan& plan, const Members& members) {
    const bool sharded = q_.form != AggregateForm::kAllReduce;
    if (members.size() == 1 || (sharded && q_.lean)) return;
    std::uint64_t bytes = 0;
    for (const Parameter* member : members) {
      bytes += size_of(member->grad.dtype()) * count_of(member->grad.shape().elems());
    }
    const bool in_turn = plan.parameters.back() - plan.parameters.front() + 1 ==
                         static_cast<int>(plan.parameters.size());
    if (sharded || !q_.adjacent || !in_turn) add(bytes);
  }

  void add_coded(Path path, const Members& members) {
    note_widened(members);
    for (const Parameter* member : members) {
      const Traits traits = member->compressor->traits();
      // Rounds say it themselves; pairs are the step's own.
      const bool whole = path == Path::kSra || path == Path::kGather;
      if (whole) held_.exact = held_.exact && traits.fixed_payload;
      if (path == Path::kSra) continue;
      add(feedback_bytes(*member, member->grad.shape().elems(), 2));
      if (traits.stateful) add_method_state(*member);
    }
    if (path == Path::kSra) return add_shards(members);
    if (path == Path::kOkTopk) return;  // pairs are the step's own
    for (int round = 0; add_round(path, members, round); ++round) {
    }
  }

  // Of 16 bits, in fp32 while the bucket is in work.
  void note_widened(const Members& members) {
    if (!is_narrow(members.front()->grad.dtype())) return;
    std::uint64_t bytes = 0;
    for (const Parameter* member : members) {
      bytes += sizeof(float) * count_of(member->grad.shape().elems());
    }
    widened_.expect(bytes);
  }

  // What the built-in methods keep themselves.
  void add_method_state(const Parameter& parameter) {
    const Shape& shape = parameter.grad.shape();
    const std::uint64_t whole = element_bytes(parameter) * count_of(shape.elems());
    const std::string spec = parameter.compressor->spec();
    const auto payload = [&](int round) {
      return parameter.compressor->max_payload_bytes(shape, parameter.coded_dtype(), round,
                                                     q_.size);
    };
    const auto is = [&spec](const char* name) {
      return spec.substr(0, spec.find_first_of(":|")) == name;
    };
    if (is("signum")) {
      add(whole);
    } else if (is("powersgd")) {
      add(payload(1));  // the factor that the next step starts from
    } else if (is("acpsgd")) {
      const bool dense = parameter.compressor->bound(shape).value == 1;
      if (!dense) add_both_factors(shape, payload(0));
    } else {  // dgc's momentum and residual
      add(2 * whole);
      held_.exact = held_.exact && is("dgc");
    }
  }

  // A payload is the longer factor.
  void add_both_factors(const Shape& shape, std::uint64_t longer) {
    const auto rows = count_of(shape.dim[0]);
    const auto columns = count_of(shape.elems()) / rows;
    add(longer + longer / std::max(rows, columns) * std::min(rows, columns));
  }

  // False where no member has the round.
  bool add_round(Path path, const Members& members, int round) {
    std::uint64_t room = 0;
    std::uint64_t sums = 0;
    std::uint64_t largest_sum = 0;
    bool any = false;
    bool fixed = true;
    bool long_lengths = false;
    bool combined = false;
    for (const Parameter* member : members) {
      const Compressor& method = *member->compressor;
      const Traits traits = method.traits();
      const DType dtype = member->coded_dtype();
      const bool slices =
          path == Path::kGather && traits.elementwise && traits.exchange == Exchange::kAllReduceSum;
      if (round >= (slices ? 1 : traits.rounds)) continue;
      const RoundKind kind = slices ? RoundKind{} : method.round_kind(round, dtype, q_.size);
      const std::uint64_t most =
          method.max_payload_bytes(member->grad.shape(), dtype, round, q_.size);
      if (!any) combined = path == Path::kSum && kind.reduces();
      any = true;
      room += most;
      fixed = fixed && kind.fixed;
      long_lengths = long_lengths || most > UINT32_MAX;
      if (!kind.reduces()) continue;
      sums += most;
      largest_sum = std::max(largest_sum, most);
    }
    if (combined) {
      add(room);
    } else if (any) {
      const std::uint64_t table = fixed ? 0 : members.size() * (long_lengths ? 8 : 4);
      add((1 + count_of(q_.size)) * (table + room));  // the own ones, and all ranks'
      add(sums + largest_sum);                        // and room for the payload that is added
      held_.exact = held_.exact && fixed;
    }
    return any;
  }

  // Packed shards, what they are unpacked into, and what error feedback keeps of both packings.
  void add_shards(const Members& members) {
    const bool scatters = q_.form != AggregateForm::kAllGather;
    const bool gathers = q_.form != AggregateForm::kReduceScatter;
    std::uint64_t unpacked = 0;
    std::uint64_t vote = 0;
    for (const Parameter* member : members) {
      if (scatters) add_scattered(*member, vote);
      if (gathers) add_gathered(*member, scatters);
      unpacked = std::max(unpacked, element_bytes(*member) * count_of(shard(*member, 0)));
    }
    add((scatters ? unpacked + vote : 0) + (gathers ? unpacked : 0));
  }

  void add_scattered(const Parameter& parameter, std::uint64_t& vote) {
    const std::int64_t own = shard(parameter, 0);
    const std::uint64_t bytes = element_bytes(parameter) * count_of(own);
    for (int rank = 1; rank < q_.size; ++rank) {
      add(packed(parameter, shard(parameter, rank)) + packed(parameter, own));
    }
    add(2 * packed(parameter, 0) + bytes);  // the sum of the own shard
    add(feedback_bytes(parameter, parameter.grad.shape().elems(), 1));
    if (is_running(parameter)) add(bytes);  // the average
    if (is_vote(parameter)) vote = std::max(vote, packed(parameter, own));
  }

  void add_gathered(const Parameter& parameter, bool of_sums) {
    const std::int64_t own = shard(parameter, 0);
    const std::int64_t all = parameter.grad.shape().elems();
    std::uint64_t payloads = packed(parameter, own);
    for (int rank = 0; rank < q_.size; ++rank)
      payloads += packed(parameter, shard(parameter, rank));
    // Sums of votes have three values where a vote has two.
    const bool wider = of_sums && is_vote(parameter);
    held_.exact = held_.exact && !wider;
    add(wider ? 2 * payloads : payloads);
    add(is_running(parameter) ? element_bytes(parameter) * count_of(all)
                              : feedback_bytes(parameter, own, 1));
  }

  static bool is_vote(const Parameter& parameter) {
    return !parameter.compressor->traits().mean_is_average_of_own;
  }

  std::span<const Parameter> parameters_;
  const HeldQuestion& q_;
  PredictedHeld held_;
  InWork widened_;  // of gradients of 16 bits
};

}  // namespace

PredictedHeld predict_held(std::span<const Parameter> parameters, const HeldQuestion& question) {
  return HeldOf(parameters, question).all();
}

}  // namespace gradwire
