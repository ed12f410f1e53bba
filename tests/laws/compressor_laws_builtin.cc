// The methods that the laws are instantiated for: one line each.
#include "gradwire/testing/compressor_laws.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/short_run.h"

namespace gradwire::laws {
namespace {

const std::vector<CompressorCase> kCases = {
    {"none"},
    {"cast:fp16"},
    {"cast:bf16"},
    {"lossless"},
    {"fp8", 512},
    {"fp8:e5m2,scale=row,block=100", 100},
    {"mx", 32},
    {"mx:e5m2", 32},
    {"mx:e3m2", 32},
    {"mx:e2m3", 32},
    {"mx:e2m1", 32},
    {"natural"},
    {"natural:bits=8"},
    {"topk:ratio=0.01"},
    {"topk:k=3"},
    {"topk:ratio=0.3,index=bitmap"},
    {"topk:ratio=0.05,index=gaps"},
    {"topk:k=3,index=auto"},
    {"topk:ratio=0.01|qsgd:bits=4"},
    {"topk:ratio=0.1@0/0.02@2/0.01@4"},
    {"topk:k=9,index=auto|qsgd:bits=8@0/2@3"},
    {"qsgd:bits=exp(8..2@5/3),bucket=64", 64},
    {"absmax:bits=linear(8..4@4)", 512},
    {"signum:beta=linear(0.5..0.9@4)"},
    {"topk:k=3|cast:bf16"},
    {"topk:ratio=0.1,index=gaps|qsgd:levels=1,norm=l2"},
    {"threshold:tau=1"},
    {"threshold:tau=0.5,index=bitmap"},
    {"threshold:tau=2,index=gaps"},
    {"threshold:tau=0.01,index=auto"},
    {"threshold:tau=1,index=auto|qsgd:bits=4"},
    {"dgc"},
    {"dgc:ratio=0.1,masking=false,index=gaps"},
    {"dgc:ratio=0.01,clip=1,nesterov=true"},
    {"dgc:ratio=exp(0.25..0.001@2/2),sample=1"},
    {"dgc:ratio=0.05,sample=1,index=auto|qsgd:bits=4"},
    {"block_sparse"},
    {"block_sparse:block=16,index=auto"},
    {"block_sparse:block=3,index=gaps"},
    {"block_sparse:block=64,index=bitmap|qsgd:bits=4"},
    {"cltk:ratio=0.1"},
    {"cltk:k=3,index=bitmap"},
    {"cltk:ratio=0.05,index=auto|qsgd:bits=4"},
    {"cltk:ratio=0.1,index=gaps|cast:bf16"},
    {"randomk:ratio=0.1"},
    {"randomk:k=300"},
    {"randomk:ratio=0.1,unbiased=true"},
    {"randomk:ratio=0.1|cast:bf16"},
    {"randomk:ratio=0.2,unbiased=true|qsgd:bits=4"},
    {"qsgd:bits=8", 512},
    {"qsgd:bits=4", 512},
    {"qsgd:bits=2,bucket=64", 64},
    {"qsgd:levels=1,norm=l2", 512},
    {"qsgd:levels=5,bucket=3", 3},
    {"minmax:bits=8", 512},
    {"minmax:bits=4", 512},
    {"minmax:bits=2,rounding=stochastic", 512},
    {"minmax:bits=1,bucket=64", 64},
    {"minmax:bits=2,spikes=1", 512},
    {"minmax:bits=3,bucket=128,rounding=stochastic,transform=hadamard", 128},
    {"minmax:bits=2,bucket=64,spikes=1,transform=hadamard", 64},
    {"absmax:bits=8", 512},
    {"absmax:bits=4,rounding=stochastic", 512},
    {"absmax:bits=1,bucket=64", 64},
    {"absmax:bits=1,bucket=64,rounding=stochastic", 64},
    {"absmax:bits=2,spikes=1", 512},
    {"absmax:bits=4,transform=hadamard", 512},
    {"terngrad"},
    {"terngrad:clip=0"},
    {"terngrad:shared=false", 0},
    {"terngrad:clip=0,shared=false", 0},
    {"global_qsgd"},
    {"global_qsgd:bits=8,norm=l2,bucket=64"},
    {"global_qsgd:levels=1,bucket=tensor"},
    {"thc"},
    {"thc:grid=31,block=64"},
    {"signsgd", 4096},
    {"signsgd:bucket=tensor", 0},
    {"signsgd:scale=none"},
    {"signsgd:scale=none,zeros=1", 256},
    {"signsgd:vote=majority"},
    {"signsgd:vote=majority,zeros=1", 256},
    {"onebit", 4096},
    {"onebit:bucket=row", 4096},
    {"onebit:bucket=5", 5},
    {"onebit:bucket=tensor", 0},
    {"signum"},
    {"signum:beta=0.5"},
    {"powersgd:rank=2,min_rate=0"},
    {"powersgd:rank=1,warm=false"},
    {"acpsgd:rank=2,min_rate=0"},
    {"atomo"},
    {"atomo:budget=1.5"},
};

// In a short run laws that take long are asked of a method's first spec in both types, and of its
// others in one type each, by turns.
std::vector<CompressorSubject> taken() {
  const std::set<std::string> long_laws{"ThreadsChangeNoBit",    "ErrorIsWithinItsBound",
                                        "UnbiasedIfClaimed",     "SmallElementsAreSentIfUnbiased",
                                        "MeanIsTheAverageOfOwn", "RanksAgreeBitForBit"};
  std::vector<CompressorSubject> all = subjects(Registry::builtin(), kCases);
  if (!is_short_run()) return all;
  std::map<std::string, int> asked;  // of a method and a law
  std::erase_if(all, [&](CompressorSubject& one) {
    const std::string name = name_of({one, 0});
    const std::string law = name.substr(0, name.find('_'));
    if (!long_laws.contains(law)) return false;
    one.brief = true;
    const int turn = asked[law + " " + parse_spec(one.one.spec).value()[0].name]++;
    return turn > 1 && turn % 4 != 0 && turn % 4 != 3;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Builtin, CompressorLaws, ::testing::ValuesIn(taken()), name_of);

// Claims decide which laws speak of a case: one that is weakened must not take its laws out in
// silence. Counted by hand in the list above.
TEST(CompressorLawCases, EveryLawHasTheCasesThatMakeItsClaim) {
  constexpr int kAll = 93;
  constexpr int kElementwise = 42;
  constexpr int kVotes = 5;    // 3 of signum, 2 of signsgd
  constexpr int kTensors = 4;  // of kElementwise, whose slices are buckets: slice_alignment 0
  const std::map<std::string, int> fewer{
      {"UnbiasedIfClaimed", 27},
      {"SmallElementsAreSentIfUnbiased", 27},
      {"LosslessIfClaimed", 5},
      {"MeanIsTheAverageOfOwn", kAll - kVotes},
      {"ErrorIsWithinItsBound", kAll - kVotes - 2 - 5},  // bare signs, dgc
      {"SlicesHaveExactlyTheirBytes", kElementwise},
      {"AnyCutDecodesAsTheWhole", kElementwise - kTensors},
      {"UnpackAddIsUnpackAndAdd", kElementwise},
      {"SecondStageKeepsTheBound", kElementwise - 2},  // the votes among them
      {"SlicesFollowTheStep", kElementwise - 3},       // none and casts are summed
      {"SlicesOfWrongLengthAreCorrupt", kElementwise},
      {"PartsCutAtSeamsJoinToTheWhole", kElementwise},
      // Not what is summed (none, cast, randomk without a second stage, shared scales, thin
      // factors), nor cltk's two rounds.
      {"ThreadsChangeNoBit", kAll - 3 - 3 - 7 - 3 - 4},
      {"ThreadsRefuseAsOneDoes", kElementwise},
      {"ThreadsFoldAsOneDoes", 20}};  // qsgd, minmax and absmax
  std::map<std::string, int> seen;
  for (const CompressorSubject& one : subjects(Registry::builtin(), kCases)) {
    const std::string name = name_of({one, 0});
    ++seen[name.substr(0, name.find('_'))];
  }
  EXPECT_EQ(std::size(kCases), static_cast<std::size_t>(kAll));
  EXPECT_EQ(seen.size(), 34U);
  for (const auto& [law, cases] : seen) {
    const auto found = fewer.find(law);
    EXPECT_EQ(cases, 2 * (found == fewer.end() ? kAll : found->second)) << law;  // two types
  }
}

TEST(CompressorLawCases, EveryRegisteredMethodIsThere) {
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    EXPECT_TRUE(std::any_of(std::begin(kCases), std::end(kCases),
                            [&method](const CompressorCase& one) {
                              return parse_spec(one.spec).value()[0].name == method.name;
                            }))
        << method.name << " has no line in kCases";
  }
}

}  // namespace
}  // namespace gradwire::laws
