// Pictures of a report, taken by a Chromium of the machine without a window.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// The browser: GRADWIRE_CHROMIUM, else the first of chromium, chromium-browser, google-chrome and
// chrome in PATH. kUnsupported when there is none.
Result<std::string> find_browser();

// Writes `directory`/report.png, the whole of `page` (a path), and `directory`/PART.png for each of
// its parts. kInternal with the browser's own words when a picture does not come about; a minute
// each at most.
Status take_pictures(const std::string& browser, const std::string& page,
                     const std::vector<std::string>& parts, const std::string& directory);

}  // namespace gradwire
