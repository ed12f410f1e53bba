#include "compress/atomo/spectrum.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <numeric>

namespace gradwire {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr double kRounding = 0x1p-50;

// Rows of `images` are what the matrix makes of the rows of `units`: l times a unit vector.
Spectrum sorted(const RowMajor& units, const RowMajor& images, double scale, bool units_left) {
  const auto count = static_cast<std::size_t>(units.rows());
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const Eigen::VectorXd lengths = images.rowwise().norm();
  const auto length = [&lengths](std::size_t k) { return lengths[static_cast<Eigen::Index>(k)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t x, std::size_t y) { return length(x) > length(y); });
  Spectrum spectrum;
  for (const std::size_t k : order) {
    const auto row = static_cast<Eigen::Index>(k);
    const double inverse = length(k) > kRounding * length(order[0]) ? 1 / length(k) : 0;
    spectrum.weight.push_back(inverse == 0 ? 0 : length(k) * scale);
    auto& unit = units_left ? spectrum.left : spectrum.right;
    auto& image = units_left ? spectrum.right : spectrum.left;
    for (Eigen::Index i = 0; i < units.cols(); ++i) {
      unit.push_back(inverse == 0 ? 0 : units(row, i));
    }
    for (Eigen::Index i = 0; i < images.cols(); ++i) image.push_back(images(row, i) * inverse);
  }
  return spectrum;
}

}  // namespace

template <typename T>
Spectrum spectrum_of(std::span<const T> matrix, std::size_t a, std::size_t c) {
  double most = 0;
  for (const T x : matrix) most = std::max(most, std::abs(static_cast<double>(x)));
  if (most == 0) most = 1;
  RowMajor m(static_cast<Eigen::Index>(a), static_cast<Eigen::Index>(c));
  std::transform(matrix.begin(), matrix.end(), m.data(),
                 [most](T x) { return static_cast<double>(x) / most; });
  const bool wide = a <= c;
  const Eigen::MatrixXd gram =
      wide ? Eigen::MatrixXd(m * m.transpose()) : Eigen::MatrixXd(m.transpose() * m);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(gram);
  const RowMajor units = solver.eigenvectors().transpose();
  const RowMajor images = wide ? RowMajor(units * m) : RowMajor(units * m.transpose());
  return sorted(units, images, most, wide);
}
template Spectrum spectrum_of(std::span<const float>, std::size_t, std::size_t);
template Spectrum spectrum_of(std::span<const double>, std::size_t, std::size_t);

std::vector<double> fill_with_water(std::span<const double> weight, double budget) {
  std::vector<double> p(weight.size());
  double rest = std::accumulate(weight.rbegin(), weight.rend(), 0.0);  // small ones first
  double left = budget;
  for (std::size_t k = 0; k < weight.size() && weight[k] > 0; ++k) {
    if (weight[k] * left < rest) {
      for (std::size_t j = k; j < weight.size(); ++j) p[j] = weight[j] * left / rest;
      break;
    }
    p[k] = 1;
    left -= 1;
    rest =
        std::accumulate(weight.rbegin(), weight.rend() - static_cast<std::ptrdiff_t>(k + 1), 0.0);
  }
  return p;
}

}  // namespace gradwire
