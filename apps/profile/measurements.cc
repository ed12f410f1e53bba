#include "apps/profile/measurements.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "apps/profile/link_measurement.h"
#include "base/text.h"
#include "bench/codec_bench.h"
#include "bench/products/product_bench.h"
#include "planner/profile/measure.h"

namespace gradwire {
namespace {

constexpr int kRepeats = 3;  // in each round

// A model and its data, which are made once for all rounds.
struct MadeModel {
  DataSet data;
  Model<float> model;
};

Result<MadeModel> make(const ProfiledModel& asked) {
  DataOptions options;
  options.text.context = asked.context;
  GW_ASSIGN(DataSet data, load_data_set(asked.data, asked.places, options));
  GW_ASSIGN(Model<float> model, make_model<float>(asked.options, data.shape(), data.classes()));
  return MadeModel{.data = std::move(data), .model = std::move(model)};
}

Status add_layers(const ProfiledModel& asked, std::optional<MadeModel>& made, std::int64_t rows,
                  Profile& profile) {
  if (!made.has_value()) {
    GW_ASSIGN(MadeModel now, make(asked));
    made.emplace(std::move(now));
  }
  GW_ASSIGN(const std::vector<ProfiledLayer> layers,
            measure_layers(made->model, made->data, asked.label, rows, kRepeats));
  profile.layers.insert(profile.layers.end(), layers.begin(), layers.end());
  return {};
}

Status add_product(std::int64_t rows, std::int64_t width, double seconds, Profile& profile) {
  bench::ProductBenchOptions options;
  options.rows = rows;
  options.width = options.inner = width;
  options.ranks = {1};
  options.seconds = seconds;
  bool added = false;  // both sides are the same square
  return bench::bench_products(options, [&](const bench::ProductRow& row) {
    if (!std::exchange(added, true)) {
      profile.products.push_back(
          {.rows = row.rows, .in = row.in, .out = row.out, .seconds = row.seconds_p50});
    }
    return Status();
  });
}

Status add_codec(const std::string& spec, std::int64_t elements, int rounds, Profile& profile) {
  GW_ASSIGN(bench::CodecBench bench,
            bench::CodecBench::create({.elements = elements, .rounds = rounds}));
  GW_ASSIGN(const bench::CodecRow row, bench.run(Registry::builtin(), spec));
  const double gigabytes = 4e-9 * static_cast<double>(elements);
  profile.codecs.push_back({.spec = spec,
                            .elements = elements,
                            .encode_seconds = gigabytes / row.encode_gbps,
                            .decode_seconds = gigabytes / row.decode_gbps,
                            .bits_per_element = row.bits_per_element});
  return {};
}

void add_links(const MeasurementOptions& o, std::vector<Measurement>& all) {
  const int link_rounds = std::clamp(o.link_rounds, 1, o.rounds);
  const int every = (o.rounds + link_rounds - 1) / link_rounds;
  for (const std::string& transport : o.transports) {
    all.push_back({"two ranks over " + transport,
                   [=, seconds = o.seconds / link_rounds](Profile& profile) -> Status {
                     GW_ASSIGN(const ProfiledLink link, measure_link(transport, seconds));
                     profile.links.push_back(link);
                     return {};
                   },
                   every});
    // Of few rounds the median is of nothing: they are short, and begin behind one another's waits.
    constexpr int kRounds = 6;
    const int rounds = (kRounds * o.rounds + link_rounds - 1) / link_rounds;
    all.push_back({"exchanges over " + transport,
                   [=, compressors = o.compressors, elements = o.elements](Profile& profile) {
                     return measure_exchanges(transport, compressors, elements, rounds, profile);
                   },
                   every});
  }
}

}  // namespace

std::vector<Measurement> measurements(const MeasurementOptions& o) {
  std::vector<Measurement> all;
  for (const ProfiledModel& model : o.models) {
    const auto made = std::make_shared<std::optional<MadeModel>>();
    for (const std::int64_t rows : o.rows) {
      all.push_back(
          {format("layers of %s, %lld samples", model.label.c_str(), static_cast<long long>(rows)),
           [=](Profile& profile) { return add_layers(model, *made, rows, profile); }});
    }
  }
  const std::int64_t most_rows =
      o.rows.empty() ? 1 : *std::max_element(o.rows.begin(), o.rows.end());
  for (const std::int64_t width : o.widths) {
    all.push_back({format("product of width %lld", static_cast<long long>(width)),
                   [=, seconds = o.seconds / o.rounds](Profile& profile) {
                     return add_product(most_rows, width, seconds, profile);
                   }});
  }
  for (const std::int64_t elements : o.elements) {
    const auto count = static_cast<long long>(elements);
    for (const std::string& name : o.optimizers) {
      all.push_back(
          {format("%s, %lld elements", name.c_str(), count), [=](Profile& profile) -> Status {
             GW_ASSIGN(const ProfiledOptimizer one, measure_optimizer(name, elements, kRepeats));
             profile.optimizers.push_back(one);
             return {};
           }});
    }
    all.push_back(
        {format("sum of gradients, %lld elements", count), [=](Profile& profile) -> Status {
           GW_ASSIGN(const ProfiledSum one, measure_sum(elements, kRepeats));
           profile.sums.push_back(one);
           return {};
         }});
    for (const std::string& spec : o.compressors) {
      all.push_back({format("%s, %lld elements", spec.c_str(), count), [=](Profile& profile) {
                       return add_codec(spec, elements, kRepeats, profile);
                     }});
    }
  }
  add_links(o, all);
  return all;
}

}  // namespace gradwire
