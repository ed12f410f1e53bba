// How the C functions answer: a Status becomes a number and the calling thread's sentence, and no
// exception leaves the library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/text.h"
#include "gradwire/c/values.h"
#include "gradwire/status.h"

namespace gradwire::c {

gw_status number_of(Code code);
Status status_of(gw_status number, std::string message);

// Keeps the sentence for gw_last_error(), unless all is well.
gw_status answer(const Status& status);

// What `body` returns, a Status, as an answer.
template <typename Body>
gw_status guarded(const Body& body) noexcept {
  try {
    return answer(body());
  } catch (const std::bad_alloc&) {
    return answer({Code::kOutOfMemory, "the host has no memory left"});
  } catch (const std::exception& thrown) {
    return answer({Code::kInternal, std::string("an exception: ") + thrown.what()});
  }
}

// Ok unless the pointer is null.
Status check_given(const void* pointer, const char* function, const char* argument);

// Handles begin with a number of their type, so that another's is noticed.
template <typename Handle>
Status check_handle(const Handle* handle, const char* function, const char* argument) {
  GW_TRY(check_given(handle, function, argument));
  if (handle->magic == Handle::kMagic) return {};
  return {Code::kInvalidArgument, std::string(function) + ": " + argument +
                                      " is no live handle of that type (expected one that gradwire "
                                      "returned and that is not freed)"};
}

// The caller's struct over the defaults, as far as the caller's version of it goes; null: the
// defaults. least: the size that the struct had in the first version, of those that have grown; a
// size between that and today's is no version's.
template <typename Options>
Status read_struct(const Options* given, const char* function, Options& options,
                   std::size_t least = 0) {
  options.struct_size = sizeof(Options);
  if (given == nullptr) return {};
  constexpr std::size_t kMost = 4096;
  const std::size_t size = given->struct_size;
  const bool unknown = least > 0 && size != least && size < sizeof(Options);
  if (size < sizeof(std::size_t) || size > kMost || unknown) {
    return {Code::kInvalidArgument,
            std::string(function) +
                format(": struct_size is %zu (expected the sizeof of the struct, %zu)", size,
                       sizeof(Options))};
  }
  std::memcpy(&options, given, std::min(given->struct_size, sizeof(Options)));
  return {};
}

// As much of the values as the caller has room for.
template <typename Values>
Status write_struct(Values values, const char* function, Values* to) {
  Values ignored = {};
  GW_TRY(check_given(to, function, "the struct for the result"));
  GW_TRY(read_struct<Values>(to, function, ignored));
  values.struct_size = std::min(to->struct_size, sizeof(Values));
  std::memcpy(to, &values, values.struct_size);
  return {};
}

}  // namespace gradwire::c
