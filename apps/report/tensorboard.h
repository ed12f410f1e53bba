// Scalars of runs as event files that TensorBoard reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/report/results.h"
#include "gradwire/status.h"

namespace gradwire {

// CRC-32C (Castagnoli), as TensorFlow's record files use it, before masking.
std::uint32_t crc32c(std::string_view bytes);

struct Scalar {
  std::string tag;  // "loss", "bytes/sent"
  std::int64_t step = 0;
  double wall_time = 0;  // seconds since 1970
  float value = 0;
};

// A whole event file:
//
//   file   := record { record }          the first one says the version, each other one a scalar
//   record := u64 length, u32 masked(crc32c(length)), bytes, u32 masked(crc32c(bytes))
//   bytes  := Event, a protocol buffer: 1 wall_time (double), 2 step (varint), 3 file_version
//             (string), 5 summary { 1 value { 1 tag (string), 2 simple_value (float) } }
//
// Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto.
std::string event_file(const std::vector<Scalar>& scalars);

// DIRECTORY/SETTING/ROW/seedN/events.out.tfevents.SECONDS.gradwire, one for every run; older event
// files of that name are replaced.
Status write_tensorboard(const Results& results, const std::string& directory);

}  // namespace gradwire
