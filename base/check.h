// Broken invariants of gradwire itself: print and abort, in every build. Never for user or peer
// input.
#pragma once

namespace gradwire {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace gradwire

#define GW_CHECK(condition) \
  ((condition) ? void(0) : ::gradwire::check_failed(#condition, __FILE__, __LINE__))
