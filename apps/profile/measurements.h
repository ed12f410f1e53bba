// What `gradwire profile` measures, one thing after another.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/profile/profile.h"
#include "trainer/data/catalog.h"
#include "trainer/models.h"

namespace gradwire {

// A model whose layers are measured, with the data that it is for.
struct ProfiledModel {
  std::string label;  // of the model, in front of its layers' names
  ModelOptions options;
  std::string data;  // the set's name: "digits"
  DataPlaces places = {};
  std::int64_t context = 32;  // of a text's samples, in tokens
};

struct MeasurementOptions {
  std::vector<ProfiledModel> models = {};
  std::vector<std::int64_t> rows = {};    // of micro-batches
  std::vector<std::int64_t> widths = {};  // of square products, by the largest micro-batch
  std::vector<std::string> optimizers = {};
  std::vector<std::string> compressors = {};
  std::vector<std::int64_t> elements = {};   // of optimizers and codecs
  std::vector<std::string> transports = {};  // links
  int rounds = 7;                            // over everything, each of a few repetitions
  int link_rounds = 3;                       // of them, those that start ranks for links
  double seconds = 0.2;  // of a product and of a link's message size, about, in all rounds
};

// One thing to measure in each round. run() adds its entries to the profile.
struct Measurement {
  std::string name;  // "layers of mlp", for progress
  std::function<Status(Profile& profile)> run;
  int every = 1;  // it takes part in each so-manieth round, from the first on
};

// In the order in which a profile has them, of one round (measure_by_rounds() has all). `options`
// are copied.
std::vector<Measurement> measurements(const MeasurementOptions& options);

}  // namespace gradwire
