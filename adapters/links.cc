#include "adapters/links.h"

#include <array>

namespace gradwire {

std::string_view to_string(LinksFrom from) {
  switch (from) {
    case LinksFrom::kDefaults: return "default";
    case LinksFrom::kCache: return "cached";
    case LinksFrom::kMeasurement: return "measured";
  }
  return "?";
}

Result<LinksFrom> links_from_environment(const EnvLookup& env, LinksFrom otherwise) {
  const auto seen = env("GRADWIRE_LINKS");
  if (!seen) return otherwise;
  for (const LinksFrom from : {LinksFrom::kDefaults, LinksFrom::kCache, LinksFrom::kMeasurement}) {
    if (*seen == to_string(from)) return from;
  }
  return Status(Code::kInvalidArgument, "bad value for GRADWIRE_LINKS (got '" + *seen +
                                            "', expected default, cached or measured)");
}

std::string links_file(const EnvLookup& env) {
  if (const auto cache = env("XDG_CACHE_HOME")) return *cache + "/gradwire/links";
  if (const auto home = env("HOME")) return *home + "/.cache/gradwire/links";
  return "";
}

Status take_links(Communicator& communicator, LinksFrom from, const std::string& file) {
  if (from == LinksFrom::kDefaults) return {};
  return calibrate(communicator, {.cache = file, .measure = from == LinksFrom::kMeasurement})
      .error();
}

}  // namespace gradwire
