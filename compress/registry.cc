#include "gradwire/registry.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/nearest.h"
#include "base/text.h"
#include "compress/absmax/absmax.h"
#include "compress/acpsgd/acpsgd.h"
#include "compress/atomo/atomo.h"
#include "compress/block_sparse/block_sparse.h"
#include "compress/cast/cast.h"
#include "compress/cltk/cltk.h"
#include "compress/dgc/dgc.h"
#include "compress/fp8/fp8.h"
#include "compress/global_qsgd/global_qsgd.h"
#include "compress/identity/identity.h"
#include "compress/lossless/lossless.h"
#include "compress/minmax/minmax.h"
#include "compress/mx/mx.h"
#include "compress/natural/natural.h"
#include "compress/onebit/onebit.h"
#include "compress/powersgd/powersgd.h"
#include "compress/qsgd/qsgd.h"
#include "compress/randomk/randomk.h"
#include "compress/schedule/scheduled_compressor.h"
#include "compress/signsgd/signsgd.h"
#include "compress/signum/signum.h"
#include "compress/terngrad/terngrad.h"
#include "compress/thc/thc.h"
#include "compress/threshold/threshold.h"
#include "compress/topk/topk.h"

namespace gradwire {
namespace {

Status check_keys(const Registry::Method& method, const Spec& spec) {
  std::vector<std::string> known;
  for (const SpecKey& key : method.keys) known.push_back(key.name);
  for (const auto& [key, value] : spec.params) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return {Code::kInvalidArgument,
            "compressor '" + spec.name + "': unknown key '" + key + "'" + did_you_mean(key, known) +
                " (value '" + value + "'; " +
                (known.empty() ? "it takes none" : "keys: " + joined(known)) + ")"};
  }
  return {};
}

Result<Spec> with_main_key(const Registry::Method& method, Spec spec) {
  for (auto& [key, value] : spec.params) {
    if (!key.empty()) continue;
    if (method.main_key.empty()) {
      std::string keys;
      for (const SpecKey& own : method.keys) keys += (keys.empty() ? "" : ", ") + own.name;
      return Status(Code::kInvalidArgument,
                    "compressor '" + spec.name + "': bare value '" + value +
                        "' has no meaning here; write key=value (keys: " + keys + ")");
    }
    key = method.main_key;
  }
  for (std::size_t i = 0; i < spec.params.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (spec.params[i].first == spec.params[j].first) {
        return Status(Code::kInvalidArgument, "compressor '" + spec.name + "': key '" +
                                                  spec.params[i].first + "' is given twice");
      }
    }
  }
  return spec;
}

}  // namespace

Registry Registry::builtin() {
  Registry registry;
  for (Method method : {
           identity_method(),    lossless_method(), cast_method(),         fp8_method(),
           mx_method(),          natural_method(),  topk_method(),         threshold_method(),
           dgc_method(),         randomk_method(),  block_sparse_method(), cltk_method(),
           minmax_method(),      absmax_method(),   qsgd_method(),         terngrad_method(),
           global_qsgd_method(), thc_method(),      signsgd_method(),      onebit_method(),
           signum_method(),      powersgd_method(), acpsgd_method(),       atomo_method(),
       }) {
    GW_CHECK(registry.add(std::move(method)).ok());
  }
  return registry;
}

Status Registry::add(Method method) {
  const auto parsed = parse_spec(method.name);
  if (!parsed.has_value() || !parsed.value()[0].params.empty() || parsed.value().size() != 1) {
    return {Code::kInvalidArgument,
            "registry: '" + method.name + "' is no method's name (expected [a-z][a-z0-9_]*)"};
  }
  if (method.factory == nullptr)
    return {Code::kInvalidArgument, "registry: '" + method.name + "' has no factory"};
  for (const Method& known : methods_) {
    if (known.name == method.name)
      return {Code::kInvalidArgument, "registry: '" + method.name + "' was added already"};
  }
  methods_.push_back(std::move(method));
  return {};
}

Result<std::pair<const Registry::Method*, Spec>> Registry::find(const Spec& stage) const {
  std::vector<std::string> names;
  for (const Method& method : methods_) {
    names.push_back(method.name);
    if (method.name != stage.name) continue;
    GW_ASSIGN(Spec spec, with_main_key(method, stage));
    GW_TRY(check_keys(method, spec));
    return std::pair(&method, std::move(spec));
  }
  return Status(Code::kInvalidArgument, "compressor: unknown method '" + stage.name + "'" +
                                            did_you_mean(stage.name, names) +
                                            " (known: " + joined(names) + ")");
}

Result<std::unique_ptr<Compressor>> Registry::make(const SpecChain& chain) const {
  if (chain.empty() || chain.size() > 2) {
    return Status(Code::kUnsupported, format("compressor '%s': %zu stages (expected one, or two of "
                                             "which the second codes the values of the first)",
                                             to_string(chain).c_str(), chain.size()));
  }
  if (is_scheduled(chain)) {
    SpecChain resolved;
    for (const Spec& stage : chain) {
      GW_ASSIGN(auto found, find(stage));
      resolved.push_back(std::move(found.second));
    }
    return make_scheduled(resolved, [this](const SpecChain& one) { return make(one); });
  }
  GW_ASSIGN(const auto first, find(chain[0]));
  const auto& [method, spec] = first;
  if (chain.size() == 1) return method->factory(spec);
  GW_ASSIGN(const auto second, find(chain[1]));
  if (method->composed == nullptr) {
    std::vector<std::string> sparse;
    for (const Method& known : methods_) {
      if (known.composed != nullptr) sparse.push_back(known.name);
    }
    return Status(Code::kInvalidArgument,
                  "compressor '" + to_string(chain) + "': " + chain[0].name +
                      " sends no list of chosen values that " + chain[1].name +
                      " could code (the first stage must be a sparse method: " + joined(sparse) +
                      ")");
  }
  GW_ASSIGN(std::shared_ptr<const Compressor> values, second.first->factory(second.second));
  const Traits traits = values->traits();
  if (!traits.elementwise || !traits.fixed_payload || !traits.mean_is_average_of_own) {
    return Status(Code::kInvalidArgument,
                  "compressor '" + to_string(chain) + "': " + chain[1].name +
                      (!traits.elementwise     ? " does not work element by element"
                       : !traits.fixed_payload ? " writes payloads of varying length"
                                               : " sends votes, not values") +
                      ", so it cannot code the values of " + chain[0].name +
                      "; write cast or qsgd there");
  }
  return method->composed(spec, std::move(values));
}

Result<std::unique_ptr<Compressor>> Registry::make(std::string_view text) const {
  GW_ASSIGN(const SpecChain chain, parse_spec(text));
  return make(chain);
}

}  // namespace gradwire
