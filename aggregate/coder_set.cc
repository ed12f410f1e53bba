#include "aggregate/coder_set.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "compress/error_feedback/ef14.h"
#include "compress/slice_coder.h"

namespace gradwire {
namespace {

Result<CodedParameter> open_coder(const ExchangeContext& context, const Parameter& parameter,
                                  Path path) {
  const Shape& shape = parameter.grad.shape();
  const DType dtype = parameter.grad.dtype();
  const Compressor& method = *parameter.compressor;
  const Traits traits = method.traits();
  const Compressor::Placement where{.dtype = dtype,
                                    .device = parameter.grad.device(),
                                    .rank = context.communicator.rank(),
                                    .size = context.communicator.size(),
                                    .seed = parameter.seed,
                                    .tensor = hash_name(parameter.name)};
  CodedParameter coded;
  coded.parameter = &parameter;
  const bool linear = traits.exchange == Exchange::kAllReduceSum;
  if (path == Path::kGather && linear && traits.elementwise) {
    GW_ASSIGN(auto format, method.open_slices(shape, where));
    coded.bytes.push_back(format->bytes(shape.elems(), 0));
    coded.coder = make_slice_coder(std::move(format), shape, where);
  } else {
    GW_ASSIGN(coded.coder, method.open(shape, where));
    for (int round = 0; round < traits.rounds; ++round) {
      coded.bytes.push_back(method.max_payload_bytes(shape, dtype, round));
    }
    coded.fixed = traits.fixed_payload;
    coded.adds_up = linear;
    coded.payload = payload_dtype(parameter);
  }
  if (parameter.error_feedback) {
    GW_ASSIGN(coded.coder, make_ef14(std::move(coded.coder), shape, where, parameter.scale));
  }
  return coded;
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
  for (const CodedParameter& coded : coders) rounds = std::max(rounds, coded.bytes.size());
  return static_cast<int>(rounds);
}

Status begin_coders(std::vector<CodedParameter>& coders, std::uint64_t step) {
  for (CodedParameter& coded : coders) {
    const Status status = coded.coder->begin(coded.parameter->grad, step, {});
    if (!status.ok()) return status.with_context("parameter '" + coded.parameter->name + "'");
  }
  return {};
}

Status finish_coders(std::vector<CodedParameter>& coders) {
  for (CodedParameter& coded : coders) {
    const Status status = coded.coder->finish(coded.parameter->grad, {}, {});
    if (!status.ok()) return status.with_context("parameter '" + coded.parameter->name + "'");
  }
  return {};
}

std::vector<NamedTensor> coder_state(std::vector<CodedParameter>& coders) {
  std::vector<NamedTensor> all;
  for (CodedParameter& coded : coders) {
    for (NamedTensor& entry : coded.coder->state()) {
      // The decorator lists its residual first; everything else belongs to the method.
      const bool residual = coded.parameter->error_feedback && entry.name == "error";
      entry.name = coded.parameter->name + (residual ? ".error" : ".coder." + entry.name);
      all.push_back(std::move(entry));
    }
  }
  return all;
}

}  // namespace gradwire
