// The table of a setting on the page of a report.
#pragma once

#include <string>
#include <vector>

#include "apps/report/summary.h"

namespace gradwire {

// Units stand in the headings; columns that would be empty are left out.
std::string page_table(const std::vector<const CaseSummary*>& cases);

}  // namespace gradwire
