// The IDX files of MNIST and its relatives.
#pragma once

#include <string>

#include "gradwire/status.h"
#include "trainer/data/data_set.h"

namespace gradwire {

// images: big-endian u32 magic 2051, count, height, width, then count * height * width bytes;
// labels: magic 2049, count, then count bytes, each below `classes`. Plain or gzip. Both files must
// hold the same count and end where their header says. kCorruptPayload names the file, the value
// seen and the value wanted. The shape is one channel of height x width.
struct IdxSamples {
  Samples samples;
  SampleShape shape;
};
Result<IdxSamples> read_idx(const std::string& image_path, const std::string& label_path,
                            std::int64_t classes);

}  // namespace gradwire
