// Compressed averages of tensors, as one operation for each bucket.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/torch/backend.h"

namespace gradwire::torch_backend {

struct AveragerOptions {
  std::string spec = "none";
  gw_form form = GW_FORM_ALL_REDUCE;
  gw_traffic traffic = GW_TRAFFIC_GRADIENTS;
  bool skip_nonfinite = false;
  bool allow_unsafe = false;
  std::uint64_t seed = 0;
  int threads = 1;
  std::int64_t bucket_bytes = 0;
  std::optional<double> momentum = {};  // the optimizer's, where it is known
};

struct NamedShape {
  std::string name;
  at::ScalarType type;
  std::vector<std::int64_t> shape;
  at::Device device;
};

// An aggregator of gradwire (gradwire/c/aggregator.h says what it promises) for PyTorch's tensors.
class Averager {
 public:
  using State = std::map<std::string, at::Tensor>;

  // Collective over the backend's group. All tensors are in host memory, or on one device.
  // ValueError: a bad spec, with what to write instead.
  Averager(c10::intrusive_ptr<GradwireBackend> backend, const std::vector<NamedShape>& tensors,
           const AveragerOptions& options);

  // Starts averaging `parts` in place: part i is the tensor indices[i], contiguous or any other
  // permutation of its elements without gaps, the same on all ranks. The work's result is `whole`,
  // which is kept until the end. DistBackendError when the group has failed.
  c10::intrusive_ptr<GradwireWork> submit(const std::vector<std::int64_t>& indices,
                                          const std::vector<at::Tensor>& parts,
                                          const at::Tensor& whole);
  void set_learning_rate(double rate);
  void set_loss_scale(double scale);

  std::vector<std::pair<std::string, double>> stats() const;
  std::vector<std::string> warnings() const;
  // Of this rank, and from every old rank's in rank order (of as many as now: this rank's is
  // enough); both between steps.
  State save();
  void load(const std::vector<std::optional<State>>& by_old_rank);

 private:
  void settle() const;

  c10::intrusive_ptr<GradwireBackend> backend_;
  std::vector<std::int64_t> elements_;
  std::vector<at::ScalarType> types_;
  std::optional<at::Device> device_;  // nullopt: the host
  std::size_t submitted_ = 0;         // tensors of the step under way
  std::shared_ptr<gw_aggregator> aggregator_;
};

// ValueError: a bad spec or an illegal pair, with what to write instead.
void check_spec(const AveragerOptions& options);

// A share of [0, elements) in the sharded forms: {begin, end}.
std::pair<std::int64_t, std::int64_t> shard_of(std::int64_t elements, int rank, int size);

}  // namespace gradwire::torch_backend
