#include "apps/links.h"

#include <array>

#include "apps/environment.h"

namespace gradwire {

std::string_view to_string(LinksFrom from) {
  switch (from) {
    case LinksFrom::kDefaults: return "default";
    case LinksFrom::kCache: return "cached";
    case LinksFrom::kMeasurement: return "measured";
  }
  return "?";
}

Result<LinksFrom> links_from_environment(LinksFrom otherwise) {
  const auto seen = environment("GRADWIRE_LINKS");
  if (!seen) return otherwise;
  for (const LinksFrom from : {LinksFrom::kDefaults, LinksFrom::kCache, LinksFrom::kMeasurement}) {
    if (*seen == to_string(from)) return from;
  }
  return Status(Code::kInvalidArgument, "bad value for GRADWIRE_LINKS ('" + *seen +
                                            "' seen; default, cached or measured wanted)");
}

std::string links_file() {
  if (const auto cache = environment("XDG_CACHE_HOME")) return *cache + "/gradwire/links";
  if (const auto home = environment("HOME")) return *home + "/.cache/gradwire/links";
  return "";
}

Status take_links(Communicator& communicator, LinksFrom from) {
  if (from == LinksFrom::kDefaults) return {};
  return settle_links(communicator,
                      {.cache = links_file(), .measure = from == LinksFrom::kMeasurement})
      .error();
}

}  // namespace gradwire
