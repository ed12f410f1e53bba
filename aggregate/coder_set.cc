#include "aggregate/coder_set.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "aggregate/all_on_workers.h"
#include "base/hash.h"
#include "base/text.h"
#include "compress/error_feedback/feedback.h"
#include "compress/threaded_format.h"

namespace gradwire {
namespace {

Result<CodedParameter> open_coder(const ExchangeContext& context, const Parameter& parameter,
                                  Path path) {
  const Shape& shape = parameter.grad.shape();
  const DType dtype = parameter.grad.dtype();
  const int size = context.communicator.size();
  const Compressor& method = *parameter.compressor;
  const Traits traits = method.traits();
  const Compressor::Placement where{.dtype = dtype,
                                    .device = parameter.grad.device(),
                                    .rank = context.communicator.rank(),
                                    .size = size,
                                    .seed = parameter.seed,
                                    .tensor = hash_name(parameter.name)};
  CodedParameter coded;
  coded.parameter = &parameter;
  const bool linear = traits.exchange == Exchange::kAllReduceSum;
  if (path == Path::kGather && linear && traits.elementwise) {
    GW_ASSIGN(auto format, open_slices_on(context.workers, method, shape, where));
    coded.rounds.push_back({RoundKind{}, format->bytes(shape.elems(), 0)});
    coded.coder = make_slice_coder(std::move(format), shape, where);
  } else {
    GW_ASSIGN(coded.coder, open_on(context.workers, method, shape, where));
    for (int round = 0; round < traits.rounds; ++round) {
      coded.rounds.push_back({method.round_kind(round, dtype, size),
                              method.max_payload_bytes(shape, dtype, round, size)});
    }
  }
  GW_ASSIGN(coded.coder, make_feedback(std::move(coded.coder), shape, where, parameter.feedback,
                                       parameter.scale));
  return coded;
}

Status named(const CodedParameter& coded, const Status& status) {
  return status.ok() ? status : status.with_context("parameter '" + coded.parameter->name + "'");
}

// encode_all() where nothing is moved afterwards.
Result<std::size_t> encode_in_turn(std::vector<CodedParameter>& coders, int round, ByteSpan room,
                                   std::vector<std::size_t>& lengths, const Stream& stream) {
  lengths.assign(coders.size(), 0);
  std::size_t end = 0;
  for (std::size_t i = 0; i < coders.size(); ++i) {
    if (round_of(coders[i], round) == nullptr) continue;
    GW_ASSIGN(lengths[i], encode_round(coders[i], round, room.subspan(end), stream));
    end += lengths[i];
  }
  return end;
}

}  // namespace

Result<std::vector<CodedParameter>> open_coders(const ExchangeContext& context,
                                                const Members& members, Path path) {
  std::vector<CodedParameter> coders;
  for (const Parameter* member : members) {
    auto coded = open_coder(context, *member, path);
    if (!coded.has_value()) return coded.error().with_context("parameter '" + member->name + "'");
    coders.push_back(std::move(coded).value());
  }
  return coders;
}

int most_rounds(const std::vector<CodedParameter>& coders) {
  std::size_t rounds = 0;
  for (const CodedParameter& coded : coders) rounds = std::max(rounds, coded.rounds.size());
  return static_cast<int>(rounds);
}

Result<std::size_t> encode_round(CodedParameter& coded, int round, ByteSpan room,
                                 const Stream& stream) {
  const auto& [kind, most] = *round_of(coded, round);
  const std::string who = "parameter '" + coded.parameter->name + "'";
  auto wrote = coded.coder->encode(round, room.first(most), stream);
  if (!wrote.has_value()) return wrote.error().with_context(who);
  const std::size_t bytes = wrote.value();
  const bool whole = !kind.reduces() || bytes % size_of(kind.payload) == 0;
  if (bytes > most || (kind.fixed && bytes != most) || !whole) {
    return Status(Code::kInternal,
                  who + format(": a payload of %zu bytes in round %d (%s%zu claimed)", bytes, round,
                               kind.fixed ? "" : "at most ", most));
  }
  return bytes;
}

Result<std::size_t> encode_all(std::vector<CodedParameter>& coders, int round, ByteSpan room,
                               std::vector<std::size_t>& lengths, Workers* workers,
                               const Stream& stream) {
  if (stream.device.space == MemorySpace::kCuda) {
    return encode_in_turn(coders, round, room, lengths, stream);
  }
  std::vector<std::size_t> places;
  std::size_t end = 0;
  for (const CodedParameter& coded : coders) {
    const CodedRound* mine = round_of(coded, round);
    places.push_back(end);
    end += mine == nullptr ? 0 : mine->bytes;
  }
  lengths.assign(coders.size(), 0);
  GW_TRY(all_on_workers(workers, coders.size(), [&](std::size_t i) -> Status {
    if (round_of(coders[i], round) == nullptr) return {};
    auto wrote = encode_round(coders[i], round, room.subspan(places[i]), {});
    if (!wrote.has_value()) return wrote.error();
    lengths[i] = wrote.value();
    return {};
  }));
  end = 0;
  for (std::size_t i = 0; i < coders.size(); ++i) {
    if (end != places[i] && lengths[i] > 0) {
      std::memmove(room.data() + end, room.data() + places[i], lengths[i]);
    }
    end += lengths[i];
  }
  return end;
}

Status begin_coders(std::vector<CodedParameter>& coders, std::uint64_t step, Workers* workers,
                    const Stream& stream) {
  return all_on_workers(workers, coders.size(), [&](std::size_t i) {
    const CodedParameter& coded = coders[i];
    return named(coded, coded.coder->begin(coded.parameter->grad, step, stream));
  });
}

Status finish_coders(std::vector<CodedParameter>& coders, Workers* workers, const Stream& stream) {
  return all_on_workers(workers, coders.size(), [&](std::size_t i) {
    const CodedParameter& coded = coders[i];
    return named(coded, coded.coder->finish(coded.parameter->grad, {}, stream));
  });
}

std::vector<NamedTensor> coder_state(std::vector<CodedParameter>& coders) {
  std::vector<NamedTensor> all;
  for (CodedParameter& coded : coders) {
    for (NamedTensor& entry : coded.coder->state()) {
      const bool feedback = is_feedback_state(coded.parameter->feedback, entry.name);
      entry.name = coded.parameter->name + (feedback ? "." : ".coder.") + entry.name;
      all.push_back(std::move(entry));
    }
  }
  return all;
}

}  // namespace gradwire
