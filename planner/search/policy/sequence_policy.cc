#include "planner/search/policy/sequence_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/search/policy/softmax.h"
#include "planner/search/simple_placements.h"

namespace gradwire {
namespace {

// rows x vector.size(), plus what is there.
void add_product(std::span<const double> matrix, std::span<const double> vector,
                 std::span<double> sums) {
  for (std::size_t row = 0; row < sums.size(); ++row) {
    for (std::size_t i = 0; i < vector.size(); ++i) {
      sums[row] += matrix[row * vector.size() + i] * vector[i];
    }
  }
}

// The transposed product with what came of the rows, and the matrix's gradient.
void back_through_product(std::span<const double> matrix, std::span<const double> vector,
                          std::span<const double> of_sums, std::span<double> of_matrix,
                          std::span<double> of_vector) {
  for (std::size_t row = 0; row < of_sums.size(); ++row) {
    for (std::size_t i = 0; i < vector.size(); ++i) {
      of_matrix[row * vector.size() + i] += of_sums[row] * vector[i];
      of_vector[i] += of_sums[row] * matrix[row * vector.size() + i];
    }
  }
}

double greatest(const std::vector<double>& values) {
  const double most = values.empty() ? 0 : *std::ranges::max_element(values);
  return most > 0 ? most : 1;
}

// What each group reads of each, in bytes: [reader][read].
std::vector<std::vector<double>> bytes_between(const OperatorGraph& graph,
                                               const std::vector<std::vector<int>>& groups) {
  std::vector<std::size_t> group_of(graph.operators.size());
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const int one : groups[group]) group_of[static_cast<std::size_t>(one)] = group;
  }
  std::vector<std::vector<double>> bytes(groups.size(), std::vector<double>(groups.size()));
  for (int reader = 0; reader < graph.size(); ++reader) {
    for (const int input : graph.at(reader).inputs) {
      const std::size_t from = group_of[static_cast<std::size_t>(input)];
      const std::size_t to = group_of[static_cast<std::size_t>(reader)];
      if (from != to) bytes[to][from] += static_cast<double>(graph.output_bytes(input));
    }
  }
  return bytes;
}

}  // namespace

std::vector<std::vector<double>> group_features(const OperatorGraph& graph) {
  const auto groups = graph.groups();
  const std::vector<std::int64_t> macs = group_macs(graph);
  const std::vector<double> products(macs.begin(), macs.end());
  std::vector<double> parameters;
  std::vector<double> outputs;
  std::vector<double> layers;
  for (const auto& group : groups) {
    double held = 0;
    double given = 0;
    for (const int one : group) {
      held += static_cast<double>(graph.at(one).parameter_bytes);
      given += static_cast<double>(graph.output_bytes(one));
    }
    parameters.push_back(held);
    outputs.push_back(given);
    layers.push_back(graph.at(group.front()).layer + 1);
  }
  const auto bytes = bytes_between(graph, groups);
  const auto count = static_cast<double>(groups.size());
  std::vector<std::vector<double>> all;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    std::vector<double> one{products[group] / greatest(products),
                            parameters[group] / greatest(parameters),
                            outputs[group] / greatest(outputs),
                            layers[group] / greatest(layers),
                            static_cast<double>(group) / count,
                            static_cast<double>(groups[group].size()) / graph.size()};
    double sum = 0;
    for (std::size_t other = 0; other < groups.size(); ++other) {
      sum += bytes[group][other] + bytes[other][group];
    }
    for (std::size_t other = 0; other < groups.size(); ++other) {
      one.push_back(sum > 0 ? bytes[group][other] / sum : 0);
      one.push_back(sum > 0 ? bytes[other][group] / sum : 0);
    }
    all.push_back(std::move(one));
  }
  return all;
}

SequencePolicy::SequencePolicy(std::vector<std::vector<double>> features, int devices,
                               const SequenceSizes& sizes, std::uint64_t seed)
    : features_(std::move(features)),
      devices_(static_cast<std::size_t>(devices)),
      units_(sizes.units),
      embedding_(sizes.embedding),
      encoder_{features_.front().size(), units_},
      decoder_{embedding_ + units_, units_},
      adam_(0, sizes.step_size) {
  const auto put = [this](std::size_t size) {
    return std::exchange(places_.all, places_.all + size);
  };
  places_.encoder = put(encoder_.parameters());
  places_.decoder = put(decoder_.parameters());
  places_.embedding = put((devices_ + 1) * embedding_);
  places_.of_encoded = put(units_ * units_);
  places_.of_state = put(units_ * units_);
  places_.score = put(units_);
  places_.output = put(devices_ * (2 * units_ + 1));
  constexpr double kWidest = 0.3;
  SearchDraws draws(seed);
  for (std::size_t i = 0; i < places_.all; ++i) {
    parameters_.push_back(kWidest * (2 * draws.uniform() - 1));
  }
  gradient_.resize(places_.all);
  adam_ = AdamAscent(places_.all, sizes.step_size);
}

void SequencePolicy::encode() {
  if (!encoded_.empty()) return;
  const std::vector<double> nothing(units_);
  keys_.clear();
  for (const std::vector<double>& feature : features_) {
    const bool is_first = encoded_.empty();
    LstmStep step = lstm_step(encoder_, part(places_.encoder, encoder_.parameters()), feature,
                              is_first ? nothing : encoded_.back().state,
                              is_first ? nothing : encoded_.back().memory);
    std::vector<double> key(units_);
    add_product(part(places_.of_encoded, units_ * units_), step.state, key);
    keys_.push_back(std::move(key));
    encoded_.push_back(std::move(step));
  }
}

SequencePolicy::Turn SequencePolicy::turn(std::size_t group, int before,
                                          const LstmStep& last) const {
  Turn turn{.before = before};
  const auto device =
      part(places_.embedding + static_cast<std::size_t>(before) * embedding_, embedding_);
  std::vector<double> input(device.begin(), device.end());
  const std::vector<double>& here = encoded_[group].state;
  input.insert(input.end(), here.begin(), here.end());
  turn.step = lstm_step(decoder_, part(places_.decoder, decoder_.parameters()), input, last.state,
                        last.memory);
  std::vector<double> query(units_);
  add_product(part(places_.of_state, units_ * units_), turn.step.state, query);
  const auto score = part(places_.score, units_);
  for (const std::vector<double>& key : keys_) {
    std::vector<double>& blended = turn.blended.emplace_back();
    double sum = 0;
    for (std::size_t i = 0; i < units_; ++i) {
      blended.push_back(std::tanh(key[i] + query[i]));
      sum += score[i] * blended[i];
    }
    turn.attention.push_back(sum);
  }
  softmax(turn.attention);
  turn.context.resize(units_);
  for (std::size_t other = 0; other < encoded_.size(); ++other) {
    for (std::size_t i = 0; i < units_; ++i) {
      turn.context[i] += turn.attention[other] * encoded_[other].state[i];
    }
  }
  const std::size_t row = 2 * units_ + 1;
  for (std::size_t one = 0; one < devices_; ++one) {
    const auto weights = part(places_.output + one * row, row);
    double logit = weights.back();
    for (std::size_t i = 0; i < units_; ++i) {
      logit += weights[i] * turn.step.state[i] + weights[units_ + i] * turn.context[i];
    }
    turn.probabilities.push_back(logit);
  }
  softmax(turn.probabilities);
  return turn;
}

std::vector<int> SequencePolicy::draw(SearchDraws& draws) {
  encode();
  std::vector<int> devices;
  LstmStep last = encoded_.back();
  int before = static_cast<int>(devices_);
  for (std::size_t group = 0; group < features_.size(); ++group) {
    Turn now = turn(group, before, last);
    before = draw_one(now.probabilities, draws);
    devices.push_back(before);
    last = std::move(now.step);
  }
  return devices;
}

std::vector<SequencePolicy::Turn> SequencePolicy::turns(const std::vector<int>& devices) {
  encode();
  std::vector<Turn> all;
  int before = static_cast<int>(devices_);
  for (std::size_t group = 0; group < features_.size(); ++group) {
    all.push_back(turn(group, before, all.empty() ? encoded_.back() : all.back().step));
    before = devices[group];
  }
  return all;
}

double SequencePolicy::log_probability(const std::vector<int>& devices) {
  double sum = 0;
  const std::vector<Turn> all = turns(devices);
  for (std::size_t group = 0; group < all.size(); ++group) {
    sum += std::log(all[group].probabilities[static_cast<std::size_t>(devices[group])]);
  }
  return sum;
}

double SequencePolicy::entropy(const std::vector<int>& devices) {
  double sum = 0;
  for (const Turn& one : turns(devices)) sum += entropy_of(one.probabilities);
  return sum;
}

void SequencePolicy::back_through_output(const Turn& turn, const std::vector<double>& of_logits,
                                         std::vector<double>& of_state,
                                         std::vector<double>& of_context) {
  const std::size_t row = 2 * units_ + 1;
  for (std::size_t device = 0; device < devices_; ++device) {
    const auto weights = part(places_.output + device * row, row);
    const auto gradient = along(places_.output + device * row, row);
    for (std::size_t i = 0; i < units_; ++i) {
      gradient[i] += of_logits[device] * turn.step.state[i];
      gradient[units_ + i] += of_logits[device] * turn.context[i];
      of_state[i] += of_logits[device] * weights[i];
      of_context[i] += of_logits[device] * weights[units_ + i];
    }
    gradient.back() += of_logits[device];
  }
}

void SequencePolicy::back_through_attention(const Turn& turn, const std::vector<double>& of_context,
                                            std::vector<double>& of_state, Carried& carried) {
  std::vector<double> of_attention(turn.attention.size());
  double mean = 0;
  for (std::size_t other = 0; other < turn.attention.size(); ++other) {
    for (std::size_t i = 0; i < units_; ++i) {
      of_attention[other] += of_context[i] * encoded_[other].state[i];
      carried.encoded[other][i] += turn.attention[other] * of_context[i];
    }
    mean += turn.attention[other] * of_attention[other];
  }
  const auto score = part(places_.score, units_);
  const auto of_score = along(places_.score, units_);
  std::vector<double> of_query(units_);
  for (std::size_t other = 0; other < turn.attention.size(); ++other) {
    const double of_sum = turn.attention[other] * (of_attention[other] - mean);
    for (std::size_t i = 0; i < units_; ++i) {
      const double blended = turn.blended[other][i];
      of_score[i] += of_sum * blended;
      const double inner = of_sum * score[i] * (1 - blended * blended);
      carried.keys[other][i] += inner;
      of_query[i] += inner;
    }
  }
  back_through_product(part(places_.of_state, units_ * units_), turn.step.state, of_query,
                       along(places_.of_state, units_ * units_), of_state);
}

void SequencePolicy::back_through_decoder(std::size_t group, const Turn& turn,
                                          const std::vector<double>& of_state, Carried& carried) {
  LstmBack back =
      lstm_back(decoder_, part(places_.decoder, decoder_.parameters()), turn.step, of_state,
                carried.memory, along(places_.decoder, decoder_.parameters()));
  const auto device =
      along(places_.embedding + static_cast<std::size_t>(turn.before) * embedding_, embedding_);
  for (std::size_t i = 0; i < embedding_; ++i) device[i] += back.input[i];
  for (std::size_t i = 0; i < units_; ++i) {
    carried.encoded[group][i] += back.input[embedding_ + i];
  }
  carried.state = std::move(back.state);
  carried.memory = std::move(back.memory);
}

void SequencePolicy::back_through_encoder(Carried& carried) {
  for (std::size_t group = features_.size(); group-- > 0;) {
    std::vector<double>& of_state = carried.encoded[group];
    back_through_product(part(places_.of_encoded, units_ * units_), encoded_[group].state,
                         carried.keys[group], along(places_.of_encoded, units_ * units_), of_state);
    for (std::size_t i = 0; i < units_; ++i) of_state[i] += carried.state[i];
    LstmBack back =
        lstm_back(encoder_, part(places_.encoder, encoder_.parameters()), encoded_[group], of_state,
                  carried.memory, along(places_.encoder, encoder_.parameters()));
    carried.state = std::move(back.state);
    carried.memory = std::move(back.memory);
  }
}

void SequencePolicy::add(const std::vector<int>& devices, double weight, double entropy) {
  const std::vector<Turn> all = turns(devices);
  const std::vector<std::vector<double>> none(all.size(), std::vector<double>(units_));
  Carried carried{std::vector<double>(units_), std::vector<double>(units_), none, none};
  for (std::size_t group = all.size(); group-- > 0;) {
    const Turn& turn = all[group];
    std::vector<double> of_state = carried.state;
    std::vector<double> of_context(units_);
    back_through_output(turn, logit_gradient(turn.probabilities, devices[group], weight, entropy),
                        of_state, of_context);
    back_through_attention(turn, of_context, of_state, carried);
    back_through_decoder(group, turn, of_state, carried);
  }
  back_through_encoder(carried);
}

void SequencePolicy::step() {
  adam_.step(parameters_, gradient_);
  encoded_.clear();
}

void SequencePolicy::nudge(std::size_t parameter, double by) {
  parameters_[parameter] += by;
  encoded_.clear();
}

}  // namespace gradwire
