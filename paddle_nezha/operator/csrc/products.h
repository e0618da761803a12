// Matrix products of the small shapes attention is made of. Included by each instruction set's file after simd.h.
//
// The right-hand matrix lies in panels: NEZHA_COLUMNS vectors wide (the last may be narrower), each holding all its rows
// one after another, so that a panel is read as it lies in the cache.

namespace nezha {
namespace NEZHA_SET {
namespace {

constexpr int kRows = 6;                 // rows of the result that are in registers at once
constexpr int kColumns = NEZHA_COLUMNS;  // vectors of each such row
// Rows of a panel for which the panel stays in the nearest cache.
constexpr int64_t kDepth = 32768 / (NEZHA_COLUMNS * NEZHA_BYTES);

NEZHA_INLINE int64_t rounded_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
template <class T>
NEZHA_INLINE int64_t vectors_for(int64_t columns) {
  return (columns + lanes<T>() - 1) / lanes<T>();
}

// A matrix [depth, vectors * lanes] in panels.
template <class T>
struct Panels {
  const T* data;
  int64_t depth, vectors;
};
template <class T>
NEZHA_INLINE int64_t panels_size(int64_t depth, int64_t columns) {
  return depth * vectors_for<T>(columns) * lanes<T>();
}
// Where element (row, column) of such a matrix lies.
template <class T>
NEZHA_INLINE int64_t in_panels(int64_t depth, int64_t vectors, int64_t row, int64_t column) {
  const int64_t width = kColumns * lanes<T>(), panel = column / width;
  const int64_t own = least<int64_t>(width, vectors * lanes<T>() - panel * width);
  return panel * depth * width + row * own + column % width;
}

template <class T, int ROWS, int COLUMNS>
NEZHA_INLINE void tile(const T* a, int64_t a_row, int64_t a_column, const T* b, int64_t b_row, T* c, int64_t c_row,
                       int64_t depth, bool add) {
  constexpr int n = lanes<T>();
  Vector<T> sum[ROWS][COLUMNS];
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; j++) sum[i][j] = add ? load(c + i * c_row + j * n) : Vector<T>{};
  for (int64_t k = 0; k < depth; k++, a += a_column, b += b_row) {
    Vector<T> right[COLUMNS];
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; j++) right[j] = load(b + j * n);
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++) {
      const T left = a[i * a_row];
#pragma GCC unroll 8
      for (int j = 0; j < COLUMNS; j++) sum[i][j] += left * right[j];
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; j++) store(c + i * c_row + j * n, sum[i][j]);
}

template <class T, int COLUMNS>
__attribute__((noinline)) void strip(int64_t rows, const T* a, int64_t a_row, int64_t a_column, const T* b,
                                     int64_t b_row, T* c, int64_t c_row, int64_t depth, bool add) {
  int64_t i = 0;
  // A single vector of each of kRows rows would leave the processor waiting for the sums.
  for (; COLUMNS == 1 && i + 2 * kRows <= rows; i += 2 * kRows)
    tile<T, 2 * kRows, 1>(a + i * a_row, a_row, a_column, b, b_row, c + i * c_row, c_row, depth, add);
  for (; i + kRows <= rows; i += kRows)
    tile<T, kRows, COLUMNS>(a + i * a_row, a_row, a_column, b, b_row, c + i * c_row, c_row, depth, add);
  a += i * a_row, c += i * c_row;
  switch (rows - i) {
    case 1: tile<T, 1, COLUMNS>(a, a_row, a_column, b, b_row, c, c_row, depth, add); break;
    case 2: tile<T, 2, COLUMNS>(a, a_row, a_column, b, b_row, c, c_row, depth, add); break;
    case 3: tile<T, 3, COLUMNS>(a, a_row, a_column, b, b_row, c, c_row, depth, add); break;
    case 4: tile<T, 4, COLUMNS>(a, a_row, a_column, b, b_row, c, c_row, depth, add); break;
    case 5: tile<T, 5, COLUMNS>(a, a_row, a_column, b, b_row, c, c_row, depth, add); break;
    default: break;
  }
}

// c [rows, vectors * lanes] = (c if add) + a [rows, depth] b, over the first `depth` rows and `vectors` vectors of b.
// Element (i, k) of a is at a[i * a_row + k * a_column].
template <class T>
void product(int64_t rows, int64_t vectors, int64_t depth, const T* a, int64_t a_row, int64_t a_column,
             const Panels<T>& b, T* c, int64_t c_row, bool add) {
  constexpr int64_t width = kColumns * lanes<T>();
  if (depth == 0 && !add)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < vectors; j++) store(c + i * c_row + j * lanes<T>(), Vector<T>{});
  for (int64_t first = 0; first < vectors; first += kColumns) {
    const int64_t panel = first / kColumns, used = least<int64_t>(kColumns, vectors - first);
    const int64_t own = least<int64_t>(kColumns, b.vectors - first) * lanes<T>();
    const T* data = b.data + panel * b.depth * width;
    T* to = c + first * lanes<T>();
    for (int64_t k = 0; k < depth; k += kDepth) {
      const int64_t part = least(kDepth, depth - k);
      const bool more = add || k > 0;
      const T *left = a + k * a_column, *right = data + k * own;
      switch (used) {
        case 1: strip<T, 1>(rows, left, a_row, a_column, right, own, to, c_row, part, more); break;
        case 2: strip<T, 2>(rows, left, a_row, a_column, right, own, to, c_row, part, more); break;
#if NEZHA_COLUMNS > 2
        case 3: strip<T, 3>(rows, left, a_row, a_column, right, own, to, c_row, part, more); break;
        case 4: strip<T, 4>(rows, left, a_row, a_column, right, own, to, c_row, part, more); break;
#endif
        default: break;
      }
    }
  }
}

// Rows [rows, columns] (`row` apart), plus `bias` [columns] or null, as the panels of the matrix itself; what is beyond the
// columns is 0.
template <class T>
void pack(const T* from, int64_t row, const T* bias, int64_t rows, int64_t columns, T* to) {
  constexpr int64_t width = kColumns * lanes<T>();
  const int64_t vectors = vectors_for<T>(columns);
  for (int64_t first = 0; first < vectors * lanes<T>(); first += width) {
    const int64_t own = least(width, vectors * lanes<T>() - first), filled = least(own, columns - first);
    for (int64_t i = 0; i < rows; i++, to += own) {
      const T* source = from + i * row + first;
      int64_t j = 0;
      for (; j + lanes<T>() <= filled; j += lanes<T>())
        store(to + j, bias ? load(source + j) + load(bias + first + j) : load(source + j));
      for (; j < filled; j++) to[j] = bias ? source[j] + bias[first + j] : source[j];
      for (; j < own; j++) to[j] = 0;
    }
  }
}

// A square of lanes x lanes, plus `bias` [lanes] or null, transposed: each round zips the first half of the rows with the second.
template <class T>
NEZHA_INLINE void transpose(const T* from, int64_t row, const T* bias, T* to, int64_t to_row) {
  constexpr int n = lanes<T>();
  Vector<T> x[n], y[n];
#pragma GCC unroll 16
  for (int i = 0; i < n; i++) x[i] = bias ? load(from + i * row) + load(bias) : load(from + i * row);
#pragma GCC unroll 4
  for (int round = 1; round < n; round *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; i++) {
      y[2 * i] = pick<T, ZipLow>(x[i], x[i + n / 2]);
      y[2 * i + 1] = pick<T, ZipHigh>(x[i], x[i + n / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) x[i] = y[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < n; i++) store(to + i * to_row, x[i]);
}

// Rows [rows, columns], plus `bias` [columns] or null, as the panels of their transpose [columns, rows]; what is beyond the
// rows is 0.
template <class T>
void pack_transposed(const T* from, int64_t row, const T* bias, int64_t rows, int64_t columns, T* to) {
  constexpr int n = lanes<T>();
  constexpr int64_t width = kColumns * n;
  const int64_t padded = rounded_up(rows, n);
  for (int64_t first = 0; first < padded; first += width) {
    const int64_t own = least(width, padded - first);
    for (int64_t i = 0; i < own; i += n) {
      const int64_t filled = least<int64_t>(n, rows - first - i);
      const T* source = from + (first + i) * row;
      int64_t j = 0;
      if (filled == n)
        for (; j + n <= columns; j += n) transpose(source + j, row, bias ? bias + j : nullptr, to + j * own + i, own);
      for (; j < columns; j++)
        for (int64_t k = 0; k < n; k++)
          to[j * own + i + k] = k < filled ? source[k * row + j] + (bias ? bias[j] : T(0)) : T(0);
    }
    to += columns * own;
  }
}

}  // namespace
}  // namespace NEZHA_SET
}  // namespace nezha
