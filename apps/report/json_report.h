// A report as data: report.json, which holds every figure of report.html (docs/experiments.md).
#pragma once

#include <string>

#include "apps/report/page.h"

namespace gradwire {

// Ends with a newline.
std::string json_report(const ReportInput& input);

}  // namespace gradwire
