// The laws of compressors over methods whose coders and formats lie on a device: a line for each.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "gradwire/testing/compressor_laws.h"
#include "tests/gpu/hosted_method.h"
#include "tests/support/short_run.h"

namespace gradwire::laws {
namespace {

const std::vector<CompressorCase> kCases = {
    {"none"},
    {"lossless"},
    {"cast:fp16"},
    {"cast:bf16"},
    {"fp8", 512},
    {"fp8:e5m2,block=100", 100},
    {"mx:e5m2", 32},
    {"mx:e2m1", 32},
    {"natural"},
    {"natural:bits=8"},
    {"powersgd:rank=2"},
    {"powersgd:rank=4,min_rate=0"},
    {"powersgd:rank=1,warm=false"},
    {"acpsgd:rank=2,min_rate=0"},
    {"atomo:budget=1.5"},
    {"topk:ratio=0.01"},
    {"topk:ratio=0.3,index=bitmap"},
    {"topk:ratio=0.01|qsgd:bits=4"},
    {"threshold:tau=1"},
    {"threshold:tau=0.5,index=bitmap"},
    {"randomk:ratio=0.1"},
    {"randomk:ratio=0.2,unbiased=true|qsgd:bits=4"},
    {"cltk:ratio=0.1"},
    {"cltk:ratio=0.2,index=bitmap|qsgd:bits=4"},
    {"dgc:ratio=0.1"},
    {"block_sparse:block=64"},
    {"block_sparse:block=7,index=bitmap|cast:bf16"},
    {"dgc:ratio=0.05,nesterov=true,clip=1|cast:bf16"},
    {"qsgd:bits=4", 512},
    {"qsgd:levels=5,bucket=3", 3},
    {"minmax:bits=4", 512},
    {"minmax:bits=2,rounding=stochastic", 512},
    {"absmax:bits=4", 512},
    {"absmax:bits=1,bucket=64", 64},
    {"minmax:bits=4,spikes=1", 512},
    {"absmax:bits=4,bucket=256,transform=hadamard", 256},
    {"signsgd", 4096},
    {"signsgd:scale=none"},
    {"signsgd:vote=majority"},
    {"onebit", 4096},
    {"signum"},
    {"terngrad"},
    {"terngrad:clip=0,shared=false", 0},
    {"global_qsgd:bits=4"},
    {"thc"},
    {"thc:grid=31,block=64"},
    {"global_qsgd:levels=5,norm=l2,bucket=100"},
    {"onebit:bucket=100", 100},
};

const Registry::Method& builtin_method(const std::string& name) {
  static const Registry registry = Registry::builtin();
  return *std::ranges::find(registry.methods(), name, &Registry::Method::name);
}

Result<std::unique_ptr<Compressor>> hosted(Result<std::unique_ptr<Compressor>> made) {
  if (!made.has_value()) return made;
  return std::unique_ptr<Compressor>(std::make_unique<gpu::HostedMethod>(std::move(made).value()));
}
Result<std::unique_ptr<Compressor>> make_hosted(const Spec& spec) {
  return hosted(builtin_method(spec.name).factory(spec));
}
Result<std::unique_ptr<Compressor>> make_composed(const Spec& spec,
                                                  std::shared_ptr<const Compressor> values) {
  return hosted(builtin_method(spec.name).composed(spec, std::move(values)));
}

Registry hosted_registry() {
  Registry registry;
  const Registry builtin = Registry::builtin();
  for (Registry::Method method : builtin.methods()) {
    method.factory = make_hosted;
    if (method.composed != nullptr) method.composed = make_composed;
    EXPECT_TRUE(registry.add(method).ok());
  }
  return registry;
}

// In a short run these are asked of a method's first spec, and its others share them out.
const std::vector<std::string> kLongLaws{
    "RanksAgreeBitForBit",           "FlippedBitsAreCorruptOrDecode",
    "MeanIsTheAverageOfOwn",         "SizeIsWithinItsClaim",
    "RandomBytesAreCorruptOrDecode", "SmallElementsAreSentIfUnbiased",
    "ErrorFeedbackTelescopes",       "SixToEightRanks"};

std::vector<CompressorSubject> device_subjects() {
  std::vector<CompressorSubject> all = subjects(hosted_registry(), kCases);
  std::erase_if(all, [](const CompressorSubject& one) { return one.dtype != DType::kF32; });
  if (!is_short_run()) return all;
  std::map<std::string, int> asked;  // of a method and a law
  std::erase_if(all, [&asked](CompressorSubject& one) {
    const std::string name = name_of({one, 0});
    const std::string law = name.substr(0, name.find('_'));
    const auto found = std::ranges::find(kLongLaws, law);
    if (found == kLongLaws.end()) return false;
    one.brief = true;
    const int turn = asked[law + " " + one.one.spec.substr(0, one.one.spec.find(':'))]++;
    return turn > 0 && (turn + (found - kLongLaws.begin())) % 2 == 0;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Device, CompressorLaws, ::testing::ValuesIn(device_subjects()), name_of);

// Claims decide which laws speak of a case: those of a method there are the host's, whose cases
// compressor_laws_builtin.cc counts; but for folds, which hosted_method.h does not hand on.
TEST(DeviceLawCases, AreThoseOfTheHost) {
  const auto names = [](const Registry& registry) {
    std::vector<std::string> names;
    for (const CompressorSubject& one : subjects(registry, kCases)) {
      names.push_back(name_of({one, 0}));
    }
    return names;
  };
  std::vector<std::string> wanted = names(Registry::builtin());
  std::erase_if(wanted, [](const auto& name) { return name.starts_with("ThreadsFoldAsOneDoes"); });
  EXPECT_EQ(names(hosted_registry()), wanted);
}

}  // namespace
}  // namespace gradwire::laws
