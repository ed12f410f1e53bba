// A recurrent policy: the groups are read one after another, and then placed one after another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/graph/operator_graph.h"
#include "planner/search/policy/adam_ascent.h"
#include "planner/search/policy/lstm_cell.h"
#include "planner/search/policy/placement_policy.h"

namespace gradwire {

struct SequenceSizes {
  std::size_t units = 24;     // of both networks, and of the attention
  std::size_t embedding = 8;  // of a device
  double step_size = 0.01;    // of Adam
};

// By group what is known of it: products, parameters and outputs over the greatest among groups,
// operators, its place and its layer, and what it reads of each group and hands to each, over all
// bytes that it reads and hands on.
std::vector<std::vector<double>> group_features(const OperatorGraph& graph);

// An encoder reads the groups' features in the graph's order; a decoder, which begins with the
// encoder's last state, has a step for each group. Its input is the device of the group before, as
// a learned vector, and the encoder's state of the group. It attends to all states of the encoder,
// weighed by v . tanh(W e + U s), and its state with what it attends to gives the logits of the
// devices. Both are LSTMs.
// Source: Mirhoseini et al., "Device placement optimization with reinforcement learning", ICML
// 2017, section 3.1; the attention of Bahdanau, Cho and Bengio, ICLR 2015, appendix A.1.2. Theirs
// learns alone which encoder's state belongs to a step; ours is given that one, too.
class SequencePolicy final : public PlacementPolicy {
 public:
  // Parameters are drawn evenly from -0.3 to 0.3. Wants at least one group and one device.
  SequencePolicy(std::vector<std::vector<double>> features, int devices, const SequenceSizes& sizes,
                 std::uint64_t seed);

  std::vector<int> draw(SearchDraws& draws) override;
  void add(const std::vector<int>& devices, double weight, double entropy) override;
  void step() override;

  double log_probability(const std::vector<int>& devices);
  // As PlacementPolicy::add() has it.
  double entropy(const std::vector<int>& devices);
  // For tests: what add() has added up, by parameter.
  const std::vector<double>& gradient() const { return gradient_; }
  // Changes one.
  void nudge(std::size_t parameter, double by);

 private:
  // Where the parts of the parameters begin.
  struct Places {
    std::size_t encoder = 0;
    std::size_t decoder = 0;
    std::size_t embedding = 0;   // [devices + 1][embedding]; the last is of no device yet
    std::size_t of_encoded = 0;  // W: [units][units]
    std::size_t of_state = 0;    // U: [units][units]
    std::size_t score = 0;       // v: [units]
    std::size_t output = 0;      // [devices][2 units + 1], the bias last
    std::size_t all = 0;
  };
  // A step of the decoder.
  struct Turn {
    int before = 0;  // device of the group before; as many as there are for the first
    LstmStep step = {};
    std::vector<std::vector<double>> blended = {};  // tanh(W e + U s), by group
    std::vector<double> attention = {};             // by group
    std::vector<double> context = {};
    std::vector<double> probabilities = {};
  };
  // What the derivative hands back through time.
  struct Carried {
    std::vector<double> state = {};
    std::vector<double> memory = {};
    std::vector<std::vector<double>> encoded = {};  // of the encoder's states, by group
    std::vector<std::vector<double>> keys = {};     // of W e, by group
  };

  std::span<const double> part(std::size_t place, std::size_t size) const {
    return std::span(parameters_).subspan(place, size);
  }
  std::span<double> along(std::size_t place, std::size_t size) {
    return std::span(gradient_).subspan(place, size);
  }
  void encode();
  Turn turn(std::size_t group, int before, const LstmStep& last) const;
  std::vector<Turn> turns(const std::vector<int>& devices);
  void back_through_output(const Turn& turn, const std::vector<double>& of_logits,
                           std::vector<double>& of_state, std::vector<double>& of_context);
  void back_through_attention(const Turn& turn, const std::vector<double>& of_context,
                              std::vector<double>& of_state, Carried& carried);
  void back_through_decoder(std::size_t group, const Turn& turn,
                            const std::vector<double>& of_state, Carried& carried);
  void back_through_encoder(Carried& carried);

  std::vector<std::vector<double>> features_;
  std::size_t devices_;
  std::size_t units_;
  std::size_t embedding_;
  LstmShape encoder_;
  LstmShape decoder_;
  Places places_;
  std::vector<double> parameters_;
  std::vector<double> gradient_;
  AdamAscent adam_;
  // Of these parameters; empty: not yet known.
  std::vector<LstmStep> encoded_;
  std::vector<std::vector<double>> keys_;  // W e, by group
};

}  // namespace gradwire
