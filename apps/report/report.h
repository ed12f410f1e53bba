// `gradwire report DIR`: what a sweep or a comparison came to, as one HTML page.
#pragma once

#include <string>
#include <vector>

#include "apps/report/page.h"
#include "gradwire/status.h"

namespace gradwire {

Result<int> report_command(const std::vector<std::string>& args);

// Writes DIRECTORY/report.html and table.csv.
Status write_report(const ReportInput& input, const std::string& directory);

}  // namespace gradwire
