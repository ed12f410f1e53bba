// A number that follows the step: what stands for a method's key, as in topk:ratio=0.25@0/0.01@400.
//
// clang-format off
//   schedule := value ["@0"] {"/" value "@" step}      from that step on, steps ascending
//             | shape "(" from ".." to "@" steps ["/" stages] ")"
//   shape    := "linear" | "exp"
// clang-format on
//
// linear and exp go from the first value to the second in `stages` of almost equal length (32, or
// `steps` if those are fewer), each of one value, and stay at the second from step `steps` on:
// stage i of n has from + (to - from) i/n, or from (to/from)^(i/n). Between two integers all are
// integers. exp(0.25..0.001@372/4) is the warm-up of DGC: 25 %, 6.25 %, 1.56 %, 0.4 %, then 0.1 %.
// Source: Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression", ICLR 2018, section 3.3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

struct ScheduleStage {
  std::uint64_t first = 0;  // step
  std::string value;
  friend bool operator==(const ScheduleStage&, const ScheduleStage&) = default;
};

// At most so many values.
inline constexpr std::size_t kMostScheduleStages = 64;

// No other value holds an "@".
bool is_schedule(std::string_view value);

// By ascending first step, from step 0 on, no two neighbours of one value. kInvalidArgument says
// what is wrong.
Result<std::vector<ScheduleStage>> parse_schedule(std::string_view value);

}  // namespace gradwire
