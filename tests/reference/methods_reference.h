// Optimizer-level methods written straight from their formulas: all ranks in one process, in
// double, with exact means where the methods would compress. The oracle of
// adapters/trainer/optimizers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numbers>
#include <numeric>
#include <vector>

#include "adapters/trainer/optimizers/method.h"

namespace gradwire::reference {

using Vector = std::vector<double>;
// Of rank r at a step, over all tensors.
using Gradients = std::vector<Vector>;

struct Piece {  // one tensor's place
  std::size_t first;
  std::size_t count;
  std::size_t rows;
  bool decays;
};

inline Vector mean(const Gradients& all) {
  Vector sum(all[0].size());
  for (const Vector& one : all) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i] / static_cast<double>(all.size());
  }
  return sum;
}

class MethodRun {
 public:
  MethodRun(const MethodOptions& options, std::vector<Piece> pieces, Vector start, int ranks)
      : o(options),
        pieces_(std::move(pieces)),
        x(static_cast<std::size_t>(ranks), start),
        m(x.size(), Vector(start.size())),
        v(m),
        u(m),
        last(start),
        fresh(start.size()),
        outer(start.size()),
        shared(start) {}

  void step(const Gradients& g, double lr) {
    if (o.name == "onebit_adam") onebit_adam(g, lr);
    if (o.name == "zero_one_adam") zero_one_adam(g, lr);
    if (o.name == "onebit_lamb") onebit_lamb(g, lr);
    if (o.name == "demo") demo(g, lr);
    if (o.name == "diloco") diloco(g, lr);
    ++t;
  }
  const Vector& of(int rank) const { return x[static_cast<std::size_t>(rank)]; }
  // Of DeMo's last update, before its sign.
  const Vector& waves() const { return q; }

 private:
  double decay(std::size_t i) const {
    for (const Piece& piece : pieces_) {
      if (i >= piece.first && i < piece.first + piece.count) {
        return piece.decays ? o.optimizer.weight_decay : 0;
      }
    }
    return 0;
  }
  double b1() const { return o.optimizer.beta1; }
  double b2() const { return o.optimizer.beta2; }
  double eps() const { return o.optimizer.epsilon; }
  // To the longest direction that Adam can have.
  double cut(double direction) const {
    const double most = std::max(1.0, (1 - b1()) / std::sqrt(1 - b2()));
    return std::min(std::max(direction, -most), most);
  }
  void everywhere(const Vector& values) { std::fill(x.begin(), x.end(), values); }
  void moments(const Vector& g, Vector& mean1, Vector& mean2) const {
    for (std::size_t i = 0; i < g.size(); ++i) {
      mean1[i] = b1() * mean1[i] + (1 - b1()) * g[i];
      mean2[i] = b2() * mean2[i] + (1 - b2()) * g[i] * g[i];
    }
  }

  void onebit_adam(const Gradients& g, double lr) {
    Vector all = x[0];
    if (t < o.freeze) {
      moments(mean(g), m[0], v[0]);
      const double c1 = 1 - std::pow(b1(), static_cast<double>(t + 1));
      const double c2 = 1 - std::pow(b2(), static_cast<double>(t + 1));
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] -= lr * (m[0][i] / c1 / (std::sqrt(v[0][i] / c2) + eps()) + decay(i) * all[i]);
      }
      if (t + 1 == o.freeze) {
        for (double& value : v[0]) value /= c2;
      }
    } else {
      const Vector arrived = mean(g);
      for (std::size_t i = 0; i < all.size(); ++i) {
        m[0][i] = v[0][i] == 0 ? 0 : b1() * m[0][i] + (1 - b1()) * arrived[i];
        all[i] -= lr * (cut(m[0][i] / (std::sqrt(v[0][i]) + eps())) + decay(i) * all[i]);
      }
    }
    everywhere(all);
  }

  void zero_one_adam(const Gradients& g, double lr) {
    if (t < o.freeze) {
      Vector all = x[0];
      const Vector arrived = mean(g);
      const bool learn = (t + 1) % variance_every == 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (learn) v[0][i] = b2() * v[0][i] + (1 - b2()) * arrived[i] * arrived[i];
        m[0][i] = v[0][i] == 0 ? 0 : b1() * m[0][i] + (1 - b1()) * arrived[i];
        all[i] -= lr * (cut(m[0][i] / (std::sqrt(v[0][i]) + eps())) + decay(i) * all[i]);
      }
      if (learn && ++variance_updates % o.variance_doubles == 0) variance_every *= 2;
      everywhere(all);
      last = all;
      std::fill(m.begin(), m.end(), m[0]);
      return;
    }
    ++since;
    rates += lr;
    for (std::size_t r = 0; r < x.size(); ++r) {
      for (std::size_t i = 0; i < last.size(); ++i) {
        m[r][i] = v[0][i] == 0 ? 0 : b1() * m[r][i] + (1 - b1()) * g[r][i];
        u[r][i] += lr * m[r][i];
        x[r][i] -= lr * cut(m[r][i] / (std::sqrt(v[0][i]) + eps()));
      }
    }
    if (since < local_every) return;
    const Vector sum = mean(u);
    for (std::size_t i = 0; i < last.size(); ++i) {
      last[i] -= rates * (cut(sum[i] / rates / (std::sqrt(v[0][i]) + eps())) + decay(i) * last[i]);
      for (Vector& own : m) own[i] = sum[i] / rates;
    }
    everywhere(last);
    for (Vector& own : u) std::fill(own.begin(), own.end(), 0);
    since = 0;
    rates = 0;
    if (++meetings % o.local_doubles == 0) local_every = std::min(2 * local_every, o.local_most);
  }

  double norm(const Vector& values, const Piece& p) const {
    double sum = 0;
    for (std::size_t i = p.first; i < p.first + p.count; ++i) sum += values[i] * values[i];
    return std::sqrt(sum);
  }

  void onebit_lamb(const Gradients& g, double lr) {
    Vector all = x[0];
    const Vector arrived = mean(g);
    if (ratio.empty()) {
      ratio.assign(pieces_.size(), 0);
      factor.assign(pieces_.size(), 1);
    }
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      if (t < o.freeze) {
        lamb_dense(all, arrived, p, lr);
      } else {
        lamb_compressed(all, arrived, p, lr);
      }
    }
    if (t + 1 == o.freeze) {
      for (double& value : v[0]) value /= 1 - std::pow(b2(), static_cast<double>(t + 1));
      fresh = v[0];
      for (double& value : ratio) value /= 1 - std::pow(0.9, static_cast<double>(t + 1));
    }
    everywhere(all);
  }
  void lamb_dense(Vector& all, const Vector& g, std::size_t p, double lr) {
    const Piece& piece = pieces_[p];
    Vector way(all.size());
    const double c1 = 1 - std::pow(b1(), static_cast<double>(t + 1));
    const double c2 = 1 - std::pow(b2(), static_cast<double>(t + 1));
    for (std::size_t i = piece.first; i < piece.first + piece.count; ++i) {
      m[0][i] = b1() * m[0][i] + (1 - b1()) * g[i];
      v[0][i] = b2() * v[0][i] + (1 - b2()) * g[i] * g[i];
      way[i] = m[0][i] / c1 / (std::sqrt(v[0][i] / c2) + eps()) + decay(i) * all[i];
    }
    const double long_x = norm(all, piece);
    const double long_u = norm(way, piece);
    const double now = long_x > 0 && long_u > 0 ? long_x / long_u : 1;
    ratio[p] = 0.9 * ratio[p] + 0.1 * now;
    for (std::size_t i = piece.first; i < piece.first + piece.count; ++i)
      all[i] -= lr * now * way[i];
  }
  void lamb_compressed(Vector& all, const Vector& g, std::size_t p, double lr) {
    const Piece& piece = pieces_[p];
    Vector way(all.size());
    double most = 0;
    for (std::size_t i = piece.first; i < piece.first + piece.count; ++i) {
      if (v[0][i] == 0) continue;
      // (m' - beta1 m) / (1 - beta1) is the mean gradient when the exchange is exact.
      m[0][i] = b1() * m[0][i] + (1 - b1()) * g[i];
      fresh[i] = b2() * fresh[i] + (1 - b2()) * g[i] * g[i];
      const double frozen = std::sqrt(v[0][i]) + eps();
      most = std::max(most, frozen / (std::sqrt(fresh[i]) + eps()));
      way[i] = m[0][i] / frozen;
    }
    if (piece.decays && o.optimizer.weight_decay > 0) {
      const double of_momentum = norm(way, piece);
      for (std::size_t i = piece.first; i < piece.first + piece.count; ++i) {
        way[i] += o.optimizer.weight_decay * all[i];
      }
      const double share = std::min(1.0, of_momentum / norm(way, piece));
      most = most * share + 1 - share;
    }
    most = std::min(std::max(most, 0.5), 4.0);
    factor[p] = std::min(std::max(most, 0.9 * factor[p]), 1.1 * factor[p]);
    for (std::size_t i = piece.first; i < piece.first + piece.count; ++i) {
      all[i] -= lr * ratio[p] * factor[p] * way[i];
    }
  }

  static double wave(std::size_t k, std::size_t i, std::size_t n) {
    const auto length = static_cast<double>(n);
    return std::sqrt((k == 0 ? 1 : 2) / length) *
           std::cos(std::numbers::pi * (static_cast<double>(i) + 0.5) * static_cast<double>(k) /
                    length);
  }
  std::size_t divisor(std::size_t n) const {
    for (auto d = static_cast<std::size_t>(o.chunk); d > 1; --d) {
      if (n % d == 0) return d;
    }
    return 1;
  }
  // To the eight significant bits of bf16, ties to even.
  static double rounded(double value) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    return std::ldexp(std::nearbyint(fraction * 256) / 256, exponent);
  }
  // Every coefficient from its definition: four nested loops.
  void demo(const Gradients& g, double lr) {
    q.assign(last.size(), 0);
    for (std::size_t r = 0; r < x.size(); ++r) {
      for (std::size_t i = 0; i < last.size(); ++i) {
        m[r][i] = o.optimizer.momentum * m[r][i] + lr * g[r][i];
      }
    }
    for (const Piece& piece : pieces_) demo_tensor(piece);
    for (std::size_t i = 0; i < last.size(); ++i) {
      const double sign = q[i] > 0 ? 1 : q[i] < 0 ? -1 : 0;
      const double update = lr * (sign + decay(i) * x[0][i]);
      for (Vector& own : x) own[i] -= update;
    }
  }
  void demo_tensor(const Piece& piece) {
    const std::size_t columns = piece.count / piece.rows;
    const std::size_t h = divisor(piece.rows);
    const std::size_t w = divisor(columns);
    for (std::size_t top = 0; top < piece.rows; top += h) {
      for (std::size_t left = 0; left < columns; left += w) {
        const auto place = [&](std::size_t i, std::size_t j) {
          return piece.first + (top + i) * columns + left + j;
        };
        Vector sum(h * w);
        std::vector<int> count(h * w);
        for (Vector& own : m) demo_chunk(own, h, w, place, sum, count);
        for (std::size_t c = 0; c < h * w; ++c) {
          if (count[c] == 0) continue;
          for (std::size_t i = 0; i < h; ++i) {
            for (std::size_t j = 0; j < w; ++j) {
              q[place(i, j)] += sum[c] / count[c] * wave(c / w, i, h) * wave(c % w, j, w);
            }
          }
        }
      }
    }
  }
  template <typename Place>
  void demo_chunk(Vector& own, std::size_t h, std::size_t w, const Place& place, Vector& sum,
                  std::vector<int>& count) const {
    Vector c(h * w);
    for (std::size_t k = 0; k < h * w; ++k) {
      for (std::size_t i = 0; i < h; ++i) {
        for (std::size_t j = 0; j < w; ++j) {
          c[k] += own[place(i, j)] * wave(k / w, i, h) * wave(k % w, j, w);
        }
      }
    }
    std::vector<std::size_t> order(h * w);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return std::abs(c[a]) > std::abs(c[b]); });
    order.resize(std::min(order.size(), static_cast<std::size_t>(o.topk)));
    for (const std::size_t k : order) {
      c[k] = rounded(c[k]);
      sum[k] += c[k];
      ++count[k];
      for (std::size_t i = 0; i < h; ++i) {
        for (std::size_t j = 0; j < w; ++j) {
          own[place(i, j)] -= c[k] * wave(k / w, i, h) * wave(k % w, j, w);
        }
      }
    }
  }

  void diloco(const Gradients& g, double lr) {
    const double c1 = 1 - std::pow(b1(), static_cast<double>(t + 1));
    const double c2 = 1 - std::pow(b2(), static_cast<double>(t + 1));
    for (std::size_t r = 0; r < x.size(); ++r) {
      moments(g[r], m[r], v[r]);
      for (std::size_t i = 0; i < last.size(); ++i) {
        x[r][i] -= lr * (m[r][i] / c1 / (std::sqrt(v[r][i] / c2) + eps()) + decay(i) * x[r][i]);
      }
    }
    if ((t + 1) % o.inner_steps != 0) return;
    const Vector end = mean(x);
    for (std::size_t i = 0; i < last.size(); ++i) {
      const double way = shared[i] - end[i];
      outer[i] = o.optimizer.momentum * outer[i] + way;
      shared[i] -= o.outer_lr * (way + o.optimizer.momentum * outer[i]);
    }
    everywhere(shared);
  }

  MethodOptions o;
  std::vector<Piece> pieces_;
  std::vector<Vector> x, m, v, u;  // by rank
  Vector last, fresh, outer, shared, q, ratio, factor;
  std::int64_t t = 0, variance_every = 1, variance_updates = 0, local_every = 1, meetings = 0;
  std::int64_t since = 0;
  double rates = 0;
};

}  // namespace gradwire::reference
