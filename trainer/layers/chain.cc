#include "trainer/layers/chain.h"

#include <algorithm>

#include "trainer/layers/block_part.h"

namespace gradwire {

template <typename T>
void Chain<T>::add(const std::string& name, std::unique_ptr<Layer<T>> layer) {
  Link link;
  link.name = name;
  link.params = append_table(params_, name, layer->parameters());
  link.params_elems = parameter_elems(params_) - link.params;
  link.buffers = append_table(buffers_, name, layer->buffers());
  link.buffers_elems = parameter_elems(buffers_) - link.buffers;
  link.statistics = statistics_;
  statistics_ += layer->statistics_elems();
  link.layer = std::move(layer);
  links_.push_back(std::move(link));
}

template <typename T>
auto Chain<T>::place(std::size_t at, std::int64_t rows) const -> Place {
  Place here;
  for (std::size_t i = 0;; ++i) {
    if (i == links_.size()) return here;
    const Layer<T>& layer = *links_[i].layer;
    here.output = here.saved + whole_lines<T>(layer.saved_elems(rows));
    here.delta = here.stash + whole_lines<T>(layer.stash_elems(rows));
    if (i == at) return here;
    // The last output is not the chain's to keep.
    const bool last = i + 1 == links_.size();
    const std::int64_t between = last ? 0 : whole_lines<T>(rows * layer.output().elems());
    here.saved = here.output + between;
    here.stash = here.delta + between;
  }
}

template <typename T>
std::int64_t Chain<T>::scratch_elems(std::int64_t rows, MemorySpace where) const {
  std::int64_t most = 0;
  for (const Link& link : links_) {
    most = std::max(most, link.layer->scratch_elems(rows, where));
  }
  return most;
}

template <typename T>
std::int64_t Chain<T>::saved_elems(std::int64_t rows) const {
  return place(links_.size(), rows).saved;
}

template <typename T>
std::int64_t Chain<T>::stash_elems(std::int64_t rows) const {
  return place(links_.size(), rows).stash;
}

template <typename T>
LayerCost Chain<T>::cost() const {
  LayerCost sum;
  for (const Link& link : links_) sum += link.layer->cost();
  return sum;
}

template <typename T>
std::vector<LayerPart<T>> Chain<T>::parts() const {
  std::vector<LayerPart<T>> parts;
  SampleShape input = in_;
  for (const Link& link : links_) {
    parts.push_back({link.name, link.layer.get(), input});
    input = link.layer->output();
  }
  return parts;
}

template <typename T>
Result<Placement> Chain<T>::placement(const Placement& x,
                                      std::span<const ParameterInfo> parameters) const {
  Placement now = x;
  std::size_t first = 0;
  for (std::size_t at = 0; at < links_.size(); ++at) {
    const std::size_t count = links_[at].layer->parameters().size();
    const auto next = links_[at].layer->placement(now, parameters.subspan(first, count));
    if (!next.has_value()) return next.error().with_context("'" + links_[at].name + "'");
    now = next.value();
    first += count;
  }
  return now;
}

template <typename T>
LayerPass<T> Chain<T>::inner(const LayerPass<T>& pass, std::size_t at) const {
  const Link& link = links_[at];
  const Place here = place(at, pass.rows);
  LayerPass<T> own = pass;
  own.params = part_of(pass.params, link.params, link.params_elems);
  own.buffers = part_of(pass.buffers, link.buffers, link.buffers_elems);
  own.statistics = part_of(pass.statistics, link.statistics, link.layer->statistics_elems());
  own.saved = part_of(pass.saved, here.saved, link.layer->saved_elems(pass.rows));
  own.stash = part_of(pass.stash, here.stash, link.layer->stash_elems(pass.rows));
  if (at > 0) {
    own.x = part_of(pass.saved, place(at - 1, pass.rows).output,
                    pass.rows * links_[at - 1].layer->output().elems());
  }
  if (at + 1 < links_.size()) {
    own.y = part_of(pass.saved, here.output, pass.rows * link.layer->output().elems());
  }
  return own;
}

// The derivative by what layer `at` writes.
template <typename T>
std::span<const T> Chain<T>::delta_after(const LayerPass<T>& pass, std::span<const T> dy,
                                         std::size_t at) const {
  if (at + 1 == links_.size()) return dy;
  return part_of(pass.stash, place(at, pass.rows).delta,
                 pass.rows * links_[at].layer->output().elems());
}

template <typename T>
void Chain<T>::forward(const LayerPass<T>& pass) const {
  for (std::size_t at = 0; at < links_.size(); ++at) links_[at].layer->forward(inner(pass, at));
}

// The derivative by what layer `at` reads.
template <typename T>
std::span<T> Chain<T>::delta_before(const LayerPass<T>& pass, std::span<T> dx,
                                    std::size_t at) const {
  if (at == 0) return dx;
  return part_of(pass.stash, place(at - 1, pass.rows).delta,
                 pass.rows * links_[at - 1].layer->output().elems());
}

template <typename T>
void Chain<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                              std::span<T> dx) const {
  for (std::size_t at = links_.size(); at-- > 0;) {
    const LayerPass<T> own = inner(pass, at);
    const std::span<const T> after = delta_after(pass, dy, at);
    const std::span<T> before = delta_before(pass, dx, at);
    links_[at].layer->backward_input(own, after, before);
    if (at > 0) links_[at].layer->finish_input(own, after, before);
  }
}

template <typename T>
void Chain<T>::finish_input(const LayerPass<T>& pass, std::span<const T> dy,
                            std::span<T> dx) const {
  if (!links_.empty()) {
    links_[0].layer->finish_input(inner(pass, 0), delta_after(pass, dy, 0), dx);
  }
}

template <typename T>
void Chain<T>::derive_params(const LayerPass<T>& pass, std::span<const T> dy, std::span<T> grads,
                             std::size_t at) const {
  const LayerPass<T> own = inner(pass, at);
  if (own.params.empty()) return;
  links_[at].layer->backward_params(
      own, delta_after(pass, dy, at),
      part_of(grads, links_[at].params, static_cast<std::int64_t>(own.params.size())));
}

template <typename T>
void Chain<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                               std::span<T> grads) const {
  for (std::size_t at = links_.size(); at-- > 0;) derive_params(pass, dy, grads, at);
}

template <typename T>
void Chain<T>::backward(const LayerPass<T>& pass, std::span<const T> dy, std::span<T> dx,
                        std::span<T> grads) const {
  for (std::size_t at = links_.size(); at-- > 0;) {
    const LayerPass<T> own = inner(pass, at);
    const std::span<const T> after = delta_after(pass, dy, at);
    const std::span<T> before = delta_before(pass, dx, at);
    links_[at].layer->backward_input(own, after, before);
    derive_params(pass, dy, grads, at);
    links_[at].layer->finish_input(own, after, before);
  }
}

template <typename T>
void Chain<T>::commit(std::span<const double> statistics, std::span<T> buffers) const {
  for (const Link& link : links_) {
    const std::int64_t sums = link.layer->statistics_elems();
    if (sums == 0) continue;
    link.layer->commit(part_of(statistics, link.statistics, sums),
                       part_of(buffers, link.buffers, link.buffers_elems));
  }
}

template class Chain<float>;
template class Chain<double>;

}  // namespace gradwire
