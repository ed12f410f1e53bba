#include "planner/mesh/mesh_links.h"

#include <algorithm>
#include <cmath>

namespace gradwire {
namespace {

class LinksOfMesh {
 public:
  LinksOfMesh(const Cluster& cluster, const MeshChoice& choice)
      : cluster_(cluster), choice_(choice) {
    for (const ClusterNode& node : cluster.nodes) {
      types_.insert(types_.end(), static_cast<std::size_t>(node.devices), node.type);
    }
  }

  MeshLinks all() {
    MeshLinks links;
    for (int p = 0; p < choice_.pp; ++p) {
      const std::vector<Ring> rings = data_rings(p);
      const std::vector<Ring> beside = rings_beside(p);
      links.data.push_back(
          slowest_of(rings, beside, [](std::size_t i, std::size_t n) { return (i + 1) % n; }));
      links.direct.push_back(
          slowest_of(rings, beside, [](std::size_t i, std::size_t n) { return (i + n / 2) % n; }));
      std::int64_t least = INT64_MAX;
      for (int d = 0; d < choice_.dp; ++d) {
        for (int t = 0; t < choice_.tp; ++t) {
          least = std::min(least, type(type_at(p, d, t)).memory_bytes);
        }
      }
      links.memory.push_back(least);
    }
    count_sums();
    const auto hop_uses = count_hops();
    for (int d = 0; d < choice_.dp; ++d) add(replica(d, hop_uses), links.replicas);
    return links;
  }

 private:
  using Uses = std::map<int, int>;  // of a resource at a time
  struct Ring {
    std::vector<int> devices;
  };

  int device(int p, int d, int t) const { return (p * choice_.dp + d) * choice_.tp + t; }
  int type_at(int p, int d, int t) const {
    return types_[static_cast<std::size_t>(device(p, d, t))];
  }
  const DeviceType& type(int number) const {
    return cluster_.types[static_cast<std::size_t>(number)];
  }

  const ClusterPath& path(int from, int to) {
    const auto known = paths_.find({from, to});
    if (known != paths_.end()) return known->second;
    return paths_.emplace(std::pair(from, to), cluster_.path(from, to)).first->second;
  }

  void use(int from, int to, Uses& uses) {
    for (const int resource : path(from, to).resources) ++uses[resource];
  }

  void take_slower(int from, int to, const Uses& uses, MeshLink& link) {
    constexpr double kNanoseconds = 1e9;
    const ClusterPath& one = path(from, to);
    if (one.bytes_per_second == 0) return;
    int sharers = 1;
    for (const int resource : one.resources) sharers = std::max(sharers, uses.at(resource));
    link.latency = std::max(link.latency, one.latency);
    link.byte = std::max(link.byte, sharers * kNanoseconds / one.bytes_per_second);
    link.processor = std::max(link.processor, kNanoseconds * one.processor_seconds_per_byte);
    if (one.times != nullptr) link.times = one.times;
  }

  static void wait_for(MeshLink& link) {
    constexpr double kNanoseconds = 1e9;
    if (link.times == nullptr) return;
    link.latency += std::llround(kNanoseconds * link.times->waits());
  }

  // Of rings at the same time as others beside them, whose member i sends to member to(i, members).
  template <typename To>
  MeshLink slowest_of(const std::vector<Ring>& rings, const std::vector<Ring>& beside,
                      const To& to) {
    Uses uses;
    for (const std::vector<Ring>* some : {&rings, &beside}) {
      for (const Ring& ring : *some) {
        const std::size_t n = ring.devices.size();
        for (std::size_t i = 0; n > 1 && i < n; ++i) {
          use(ring.devices[i], ring.devices[to(i, n)], uses);
        }
      }
    }
    MeshLink link;
    for (const Ring& ring : rings) {
      const std::size_t n = ring.devices.size();
      link.members = static_cast<int>(n);
      for (std::size_t i = 0; n > 1 && i < n; ++i) {
        take_slower(ring.devices[i], ring.devices[to(i, n)], uses, link);
      }
    }
    return link;
  }

  // Of each t, the ranks that have the same parameters as pipeline rank p.
  std::vector<Ring> data_rings(int p) const {
    std::vector<Ring> rings;
    for (int t = 0; t < choice_.tp; ++t) {
      Ring& ring = rings.emplace_back();
      for (int d = 0; d < choice_.dp; ++d) ring.devices.push_back(device(p, d, t));
      const int twin = choice_.pp - 1 - p;
      for (int d = 0; choice_.pipes() == 2 && d < choice_.dp; ++d) {
        ring.devices.push_back(device(twin, d, t));
      }
    }
    return rings;
  }

  // Of the other ranks of the pipeline. With two pipes all ranks have their last gradients at about
  // the same time, otherwise one behind the other.
  std::vector<Ring> rings_beside(int p) const {
    std::vector<Ring> all;
    for (int other = 0; choice_.pipes() == 2 && 2 * other < choice_.pp; ++other) {
      if (other == std::min(p, choice_.pp - 1 - p)) continue;  // the twin has the same ring
      const std::vector<Ring> rings = data_rings(other);
      all.insert(all.end(), rings.begin(), rings.end());
    }
    return all;
  }

  Ring sums_ring(int p, int d) const {
    Ring ring;
    for (int t = 0; t < choice_.tp; ++t) ring.devices.push_back(device(p, d, t));
    return ring;
  }

  // All groups of tp add up at the same time.
  void count_sums() {
    for (int p = 0; p < choice_.pp; ++p) {
      for (int d = 0; d < choice_.dp; ++d) {
        const Ring ring = sums_ring(p, d);
        const std::size_t n = ring.devices.size();
        for (std::size_t i = 0; n > 1 && i < n; ++i) {
          use(ring.devices[i], ring.devices[(i + 1) % n], sums_);
        }
      }
    }
  }

  MeshLink slowest_sum(int p, int d) {
    const Ring ring = sums_ring(p, d);
    const std::size_t n = ring.devices.size();
    MeshLink link{.members = static_cast<int>(n)};
    for (std::size_t i = 0; n > 1 && i < n; ++i) {
      take_slower(ring.devices[i], ring.devices[(i + 1) % n], sums_, link);
    }
    wait_for(link);
    return link;
  }

  // Pairs of ranks of a pipeline that send each other messages.
  std::vector<std::pair<int, int>> pairs() const {
    std::vector<std::pair<int, int>> all;
    for (int p = 0; choice_.pp > 1 && p < choice_.pp; ++p) {
      const int next = (p + 1) % choice_.pp;
      for (const auto& pair : {std::pair(p, next), std::pair(next, p)}) {
        if (std::ranges::find(all, pair) == all.end()) all.push_back(pair);
      }
    }
    return all;
  }

  std::map<std::pair<int, int>, Uses> count_hops() {
    std::map<std::pair<int, int>, Uses> all;
    for (const auto& [from, to] : pairs()) {
      Uses& uses = all[{from, to}];
      for (int d = 0; d < choice_.dp; ++d) {
        for (int t = 0; t < choice_.tp; ++t) use(device(from, d, t), device(to, d, t), uses);
      }
    }
    return all;
  }

  MeshReplica replica(int d, const std::map<std::pair<int, int>, Uses>& hop_uses) {
    MeshReplica one{.number = d};
    for (int p = 0; p < choice_.pp; ++p) {
      int slowest = type_at(p, d, 0);
      for (int t = 1; t < choice_.tp; ++t) {
        const int other = type_at(p, d, t);
        if (type(other).macs_per_second < type(slowest).macs_per_second) slowest = other;
      }
      one.types.push_back(slowest);
      one.sums.push_back(slowest_sum(p, d));
    }
    for (const auto& [pair, uses] : hop_uses) {
      MeshLink& link = one.hops[pair];
      link.members = 2;
      for (int t = 0; t < choice_.tp; ++t) {
        take_slower(device(pair.first, d, t), device(pair.second, d, t), uses, link);
      }
      wait_for(link);
    }
    return one;
  }

  static void add(MeshReplica one, std::vector<MeshReplica>& replicas) {
    const auto alike = std::ranges::find_if(replicas, [&](const MeshReplica& other) {
      return other.types == one.types && other.sums == one.sums && other.hops == one.hops;
    });
    if (alike != replicas.end()) {
      ++alike->count;
    } else {
      replicas.push_back(std::move(one));
    }
  }

  const Cluster& cluster_;
  const MeshChoice& choice_;
  std::vector<int> types_;  // by device
  std::map<std::pair<int, int>, ClusterPath> paths_;
  Uses sums_;
};

}  // namespace

MeshLinks mesh_links(const Cluster& cluster, const MeshChoice& choice) {
  return LinksOfMesh(cluster, choice).all();
}

}  // namespace gradwire
