// A doctor's report as text.
#pragma once

#include <string>

#include "apps/doctor/facts.h"

namespace gradwire {

std::string report_text(const DoctorReport& report);

}  // namespace gradwire
