// What a sweep or comparison trained, in one sentence: the top of its report.
#pragma once

#include <string>

#include "apps/report/results.h"

namespace gradwire {

// "cnn on digits (360 test samples), 6 compressors × 3 seeds: 300 steps of batch 128 by 4 ranks as
// processes over ucx. 18 runs took 13 s in all." Of several settings the values are listed. Rows
// that no compressor tells apart are "3 meshes" where --parallel does, else "3 rows".
std::string headline_of(const Results& results);

// Seconds of all runs, one after the other.
double seconds_of_runs(const Results& results);

}  // namespace gradwire
