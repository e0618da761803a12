// Gram-Schmidt on the columns of the table, in more digits than the table has.

#include "spanning.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace nezha {
namespace {

using Real = long double;
using Column = std::vector<Real>;

// Of longer tables all angles are kept: the search would take seconds, and find little.
constexpr int kLongest = 2048;
// A weight times what it weighs is no larger, so that the sums are rounded hardly more than those of the whole table.
constexpr Real kLargestWeight = 2;

// Columns, the first of which are made orthogonal one by one and taken out of those behind them.
class Columns {
 public:
  explicit Columns(std::vector<Column> columns)
      : columns_(std::move(columns)), parts_(columns_.size(), Column(columns_.size(), 0)) {
    for (const Column& one : columns_) {
      norms_.push_back(std::sqrt(inner(one, one)));
      Real largest = 0;
      for (const Real x : one) largest = std::max(largest, std::abs(x));
      largest_.push_back(largest);
    }
  }

  void keep(size_t k) {
    Column& one = columns_[k];
    const Real norm = std::sqrt(inner(one, one));
    if (norm <= 16 * std::numeric_limits<Real>::epsilon() * norms_[k]) return;  // it follows from those before it
    parts_[k][k] = norm;
    for (Real& x : one) x /= norm;
    for (size_t other = k + 1; other < columns_.size(); other++)
      for (int round = 0; round < 2; round++) {  // the second takes out what rounding left of the first
        const Real part = inner(one, columns_[other]);
        parts_[k][other] += part;
        for (size_t t = 0; t < one.size(); t++) columns_[other][t] -= part * one[t];
      }
  }

  // The largest entry that the first `kept` columns leave of the others.
  Real left(size_t kept) const {
    Real largest = 0;
    for (size_t k = kept; k < columns_.size(); k++)
      for (const Real x : columns_[k]) largest = std::max(largest, std::abs(x));
    return largest;
  }

  // Of the first `kept` columns, by which they make column k.
  Column weights(size_t kept, size_t k) const {
    Column weights(kept, 0);
    for (size_t i = kept; i-- > 0;) {
      if (parts_[i][i] == 0) continue;
      Real rest = parts_[i][k];
      for (size_t j = i + 1; j < kept; j++) rest -= parts_[i][j] * weights[j];
      weights[i] = rest / parts_[i][i];
    }
    return weights;
  }

  bool weights_are_small(size_t kept) const {
    for (size_t k = kept; k < columns_.size(); k++) {
      const Column one = weights(kept, k);
      for (size_t i = 0; i < kept; i++)
        if (std::abs(one[i]) * largest_[i] > kLargestWeight) return false;
    }
    return true;
  }

 private:
  static Real inner(const Column& a, const Column& b) {
    Real sum = 0;
    for (size_t i = 0; i < a.size(); i++) sum += a[i] * b[i];
    return sum;
  }

  std::vector<Column> columns_;
  std::vector<Column> parts_;  // [k][other]: of column `other` along column k
  Column norms_, largest_;
};

}  // namespace

template <class T>
int64_t kept_angles(int reach, int64_t angles, int64_t step, T* cos_weights, T* sin_weights) {
  if (reach > kLongest) return angles;
  const size_t count = static_cast<size_t>(angles);
  // The slowest first: so it is among the kept, however many these are.
  std::vector<Column> cosines, sines;
  for (size_t i = 0; i < count; i++) {
    const size_t k = i == 0 ? count - 1 : i - 1;
    const Real angle = std::pow(10000.0, -static_cast<double>(k) / static_cast<double>(angles));
    Column c, s;
    for (int t = 1; t <= reach; t++) {
      c.push_back(std::cos(static_cast<Real>(t) * angle));
      s.push_back(std::sin(static_cast<Real>(t) * angle));
    }
    cosines.push_back(std::move(c));
    sines.push_back(std::move(s));
  }
  Columns of_cosines(std::move(cosines)), of_sines(std::move(sines));
  const Real limit = std::numeric_limits<T>::epsilon() / 2;
  for (size_t kept = 1; kept < count; kept++) {
    of_cosines.keep(kept - 1);
    of_sines.keep(kept - 1);
    if (kept % static_cast<size_t>(step) != 0 || of_cosines.left(kept) > limit || of_sines.left(kept) > limit ||
        !of_cosines.weights_are_small(kept) || !of_sines.weights_are_small(kept))
      continue;
    const size_t others = count - kept;
    for (size_t k = 0; k < others; k++) {
      // The first of the others is the angle whose place the slowest has taken.
      const size_t place = k == 0 ? others - 1 : k - 1;
      const Column c = of_cosines.weights(kept, kept + k), s = of_sines.weights(kept, kept + k);
      for (size_t i = 0; i < kept; i++) {
        const size_t row = i == 0 ? kept - 1 : i - 1;
        cos_weights[row * others + place] = static_cast<T>(c[i]);
        sin_weights[row * others + place] = static_cast<T>(s[i]);
      }
    }
    return static_cast<int64_t>(kept);
  }
  return angles;
}

template int64_t kept_angles<float>(int, int64_t, int64_t, float*, float*);
template int64_t kept_angles<double>(int, int64_t, int64_t, double*, double*);

}  // namespace nezha
