// The forward and the backward of attention, from attention.h's definition. Included by each instruction set's file after
// products.h.
//
// Words. A row is a query. `reach` is m, or the longest distance of the sequence where that is smaller. The *strip* of a
// row has one entry for each distance -reach .. reach, at index n + reach + distance, n lanes in front and behind
// standing for the distances beyond: in a strip of scores they repeat the first and the last entry, in a strip of sums
// they are added to them. So vectors of keys that are partly beyond the reach need no case of their own, and those wholly
// beyond it, the *tails*, are plain attention with one constant.

namespace nezha {
namespace NEZHA_SET {
namespace {

// ---- sizes

constexpr int64_t kMostRows = 48;  // queries of a block, at most

template <class T>
struct Sizes {
  static constexpr int n = lanes<T>();
  int64_t head, half;      // D; D/2 in whole vectors
  int64_t wide;            // columns of a row of queries or context: 2 * half, at least D in whole vectors
  int64_t head_vectors;    // vectors that hold D
  int64_t half_vectors;
  int64_t rows;            // queries of a block
  int64_t keys;            // of the sequence, in whole vectors
  int64_t strip;           // entries of a strip
  int64_t sides;           // entries of one side of it, distance 1 .. reach, in whole vectors

  Sizes(int head_size, int reach, int64_t length) {
    head = head_size;
    half = rounded_up(head / 2, n);
    wide = 2 * half;
    head_vectors = vectors_for<T>(head);
    half_vectors = half / n;
    keys = rounded_up(length, n);
    // Scores of a block: a few hundred KiB, which stays in the second cache.
    rows = most<int64_t>(12, least<int64_t>(kMostRows, (int64_t(1) << 19) / static_cast<int64_t>(sizeof(T)) / most<int64_t>(1, keys) / 12 * 12));
    sides = rounded_up(reach, n);
    strip = rounded_up(2 * reach + 1, n) + 2 * n;
  }
};

// Scratch, handed out piece by piece; each piece is aligned to 64 bytes.
template <class T>
class Pieces {
 public:
  explicit Pieces(T* at) : at_(at) {}
  T* take(int64_t count) {
    T* piece = at_ ? at_ + used_ : nullptr;
    used_ += rounded_up(count, 64 / sizeof(T));
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  T* at_;
  int64_t used_ = 0;
};

// ---- the sinusoid table, folded

// cos(m w), sin(m w) [half] for the rotation, and cos(t w), sin(t w), t = 1 .. reach, of the `kept` angles, in two orders
// the products read; the weights by which those of the other angles follow, in two orders too. Among the angles of the
// table the last kept one and the last of all have changed places (see spanning.h).
template <class T>
struct Fold {
  T* count;  // `kept`, as a number
  T *turn_cos, *turn_sin;
  T *cos_by_angle, *sin_by_angle;        // panels [kept, reach]
  T *cos_by_distance, *sin_by_distance;  // panels [reach, kept]
  T *cos_weights, *sin_weights;          // [kept, D/2 - kept], row by row
  T *cos_others, *sin_others;            // their panels
  T *cos_kept, *sin_kept;                // panels of their transposes
  int64_t reach, angles, kept, size;

  Fold(int longest, int head_size, T* at) : reach(longest), angles(head_size / 2) {
    Pieces<T> pieces(at);
    const int64_t half = rounded_up(angles, lanes<T>());
    count = pieces.take(1);
    turn_cos = pieces.take(half);
    turn_sin = pieces.take(half);
    cos_by_angle = pieces.take(panels_size<T>(angles, reach));
    sin_by_angle = pieces.take(panels_size<T>(angles, reach));
    cos_by_distance = pieces.take(panels_size<T>(reach, angles));
    sin_by_distance = pieces.take(panels_size<T>(reach, angles));
    const int64_t most_weights = half * half / 4;  // a part of the angles times the rest of them
    cos_weights = pieces.take(most_weights);
    sin_weights = pieces.take(most_weights);
    cos_others = pieces.take(most_weights);
    sin_others = pieces.take(most_weights);
    cos_kept = pieces.take(most_weights);
    sin_kept = pieces.take(most_weights);
    size = pieces.used();
    kept = at ? static_cast<int64_t>(*count) : angles;
  }

  Panels<T> by_angle(const T* data) const { return {data, kept, vectors_for<T>(reach)}; }
  Panels<T> by_distance(const T* data) const { return {data, reach, vectors_for<T>(kept)}; }
  Panels<T> to_others(const T* data) const { return {data, kept, vectors_for<T>(angles - kept)}; }
  Panels<T> to_kept(const T* data) const { return {data, angles - kept, vectors_for<T>(kept)}; }

  // Angles [rows, half] from their own order to the table's, or back.
  void reorder(int64_t rows, int64_t half, T* x) const {
    for (int64_t i = 0; i < rows; i++, x += half) {
      const T last = x[angles - 1];
      x[angles - 1] = x[kept - 1];
      x[kept - 1] = last;
    }
  }
};

template <class T>
size_t fixed_size(int reach, int head_size) {
  return static_cast<size_t>(Fold<T>(reach, head_size, nullptr).size);
}

template <class T>
void make_fixed(int m, int reach, int head_size, T* at) {
  Fold<T> fold(reach, head_size, nullptr);
  for (int64_t i = 0; i < fold.size; i++) at[i] = 0;  // what is beyond D/2 and the reach
  fold = Fold<T>(reach, head_size, at);
  // Of m, so that a row gets the same numbers beside sequences of any length.
  fold.kept = kept_angles(m, fold.angles, lanes<T>(), fold.cos_weights, fold.sin_weights);
  *fold.count = static_cast<T>(fold.kept);
  const int64_t kept = fold.kept, others = fold.angles - kept;
  pack<T>(fold.cos_weights, others, nullptr, kept, others, fold.cos_others);
  pack<T>(fold.sin_weights, others, nullptr, kept, others, fold.sin_others);
  pack_transposed<T>(fold.cos_weights, others, nullptr, kept, others, fold.cos_kept);
  pack_transposed<T>(fold.sin_weights, others, nullptr, kept, others, fold.sin_kept);
  for (int64_t k = 0; k < fold.angles; k++) {
    const double angle = __builtin_pow(10000.0, -2.0 * static_cast<double>(k) / head_size);
    fold.turn_cos[k] = static_cast<T>(__builtin_cos(m * angle));
    fold.turn_sin[k] = static_cast<T>(__builtin_sin(m * angle));
    const int64_t place = k == fold.angles - 1 ? kept - 1 : k == kept - 1 ? fold.angles - 1 : k;
    for (int64_t t = 1; t <= reach && place < kept; t++) {
      const T c = static_cast<T>(__builtin_cos(static_cast<double>(t) * angle));
      const T s = static_cast<T>(__builtin_sin(static_cast<double>(t) * angle));
      const int64_t by_angle = in_panels<T>(kept, vectors_for<T>(reach), place, t - 1);
      const int64_t by_distance = in_panels<T>(reach, vectors_for<T>(kept), t - 1, place);
      fold.cos_by_angle[by_angle] = fold.cos_by_distance[by_distance] = c;
      fold.sin_by_angle[by_angle] = fold.sin_by_distance[by_distance] = s;
    }
  }
}

// ---- learned tables

template <class T>
struct Learned {
  T *key_by_column, *value_by_column;  // panels [D, R]: what a row of queries, or of gradients, is multiplied by
  T *key_by_row, *value_by_row;        // panels [R, D]: what a strip of sums is multiplied by
  int64_t rows, head, size;

  Learned(const Call<T>& call, T* at) : rows(2 * call.reach + 1), head(call.head_size) {
    Pieces<T> pieces(at);
    key_by_column = pieces.take(panels_size<T>(head, rows));
    value_by_column = pieces.take(panels_size<T>(head, rows));
    key_by_row = pieces.take(panels_size<T>(rows, head));
    value_by_row = pieces.take(panels_size<T>(rows, head));
    size = pieces.used();
  }
  Panels<T> by_column(const T* data) const { return {data, head, vectors_for<T>(rows)}; }
  Panels<T> by_row(const T* data) const { return {data, rows, vectors_for<T>(head)}; }
};

template <class T>
size_t learned_size(const Call<T>& call) {
  return static_cast<size_t>(Learned<T>(call, nullptr).size);
}

template <class T>
void make_learned(const Call<T>& call, T* at) {
  const Learned<T> learned(call, at);
  const T *keys = call.tables, *values = keys + learned.rows * learned.head;
  pack_transposed<T>(keys, learned.head, nullptr, learned.rows, learned.head, learned.key_by_column);
  pack_transposed<T>(values, learned.head, nullptr, learned.rows, learned.head, learned.value_by_column);
  pack<T>(keys, learned.head, nullptr, learned.rows, learned.head, learned.key_by_row);
  pack<T>(values, learned.head, nullptr, learned.rows, learned.head, learned.value_by_row);
}

// ---- dropout

NEZHA_INLINE uint64_t mixed(uint64_t x) {  // splitmix64 (Steele, Lea and Flood 2014)
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// What each element of a row is multiplied by: 0 or 1 / (1 - dropout). A pure function of the seed, the row and the
// element's place, so that the backward finds the forward's mask whatever the blocks, the instruction set or the threads.
template <class T>
void dropout_factors(uint64_t seed, double dropout, int64_t row, int64_t width, T* factors) {
  const uint64_t key = mixed(mixed(seed) + static_cast<uint64_t>(row));
  const uint32_t first = static_cast<uint32_t>(key), second = static_cast<uint32_t>(key >> 32);
  const double level = dropout * 4294967296.0;
  const uint32_t threshold = level >= 4294967295.0 ? 4294967295u : static_cast<uint32_t>(level);
  const T kept = dropout < 1.0 ? static_cast<T>(1.0 / (1.0 - dropout)) : T(0);
  const uint32_t count = static_cast<uint32_t>(width);
  for (uint32_t j = 0; j < count; j++) {
    uint32_t x = j * 0x9E3779B1u + first;
    x ^= x >> 16;
    x *= 0x21F0AAADu;
    x ^= x >> 15;
    x += second;
    x *= 0x735A2D97u;
    x ^= x >> 15;
    factors[j] = x < threshold ? T(0) : kept;
  }
}

// ---- the relative part: between rows of D and strips

// [rows, wide] turned by m w: the sine parts and the cosine parts [rows, half]; the sums of the cosine parts, which are
// the scores of distance 0.
template <class T>
NEZHA_INLINE void turn(const Sizes<T>& z, const Fold<T>& fold, int64_t rows, const T* x, T* sines, T* cosines, T* centre) {
  constexpr int n = lanes<T>();
  for (int64_t i = 0; i < rows; i++) {
    Vector<T> sum{};
    for (int64_t k = 0; k < z.half; k += n) {
      const Vector<T> a = load(x + i * z.wide + 2 * k), b = load(x + i * z.wide + 2 * k + n);
      const Vector<T> even = pick<T, Even>(a, b), odd = pick<T, Odd>(a, b);
      const Vector<T> c = load(fold.turn_cos + k), s = load(fold.turn_sin + k);
      const Vector<T> cosine = even * s + odd * c;
      store(sines + i * z.half + k, even * c - odd * s);
      store(cosines + i * z.half + k, cosine);
      sum += cosine;
    }
    centre[i] = Reduce<T>::sum(sum);
  }
}

// Repeats the first and the last entry of a strip in its margins.
template <class T>
NEZHA_INLINE void fill_margins(int64_t reach, T* strip) {
  constexpr int n = lanes<T>();
  store(strip, all(strip[n]));
  store(strip + n + 2 * reach + 1, all(strip[n + 2 * reach]));
}

// Both sides of ROWS strips, COLUMNS vectors from distance 1 + first on: the products E with the cosines and O with the
// sines stay in registers until they are E + O, behind `middle`, and E - O, backwards before it.
template <class T, int ROWS, int COLUMNS>
NEZHA_INLINE void tile_of_strips(const T* cosines, const T* sines, int64_t row, const T* cos_panel, const T* sin_panel,
                                 int64_t own, int64_t depth, int64_t first, T* middle, int64_t strip) {
  constexpr int n = lanes<T>();
  Vector<T> even[ROWS][COLUMNS], odd[ROWS][COLUMNS];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; j++) even[i][j] = odd[i][j] = Vector<T>{};
  for (int64_t k = 0; k < depth; k++, cos_panel += own, sin_panel += own) {
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
      const T c = cosines[i * row + k], s = sines[i * row + k];
#pragma GCC unroll 8
      for (int j = 0; j < COLUMNS; j++) {
        even[i][j] += c * load(cos_panel + j * n);
        odd[i][j] += s * load(sin_panel + j * n);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; j++) {
      store(middle + i * strip + 1 + first + j * n, even[i][j] + odd[i][j]);
      const Vector<T> before = even[i][j] - odd[i][j];
      store(middle + i * strip - first - (j + 1) * n, pick<T, Reverse>(before, before));
    }
}
template <class T, int COLUMNS>
__attribute__((noinline)) void columns_of_strips(int64_t rows, const T* cosines, const T* sines, int64_t row,
                                                 const T* cos_panel, const T* sin_panel, int64_t own, int64_t depth,
                                                 int64_t first, T* middle, int64_t strip) {
  int64_t i = 0;
  for (; i + kRows <= rows; i += kRows)
    tile_of_strips<T, kRows, COLUMNS>(cosines + i * row, sines + i * row, row, cos_panel, sin_panel, own, depth, first,
                                      middle + i * strip, strip);
  for (; i < rows; i++)
    tile_of_strips<T, 1, COLUMNS>(cosines + i * row, sines + i * row, row, cos_panel, sin_panel, own, depth, first,
                                  middle + i * strip, strip);
}

// Strips [rows, strip] of x [rows, wide] against the sinusoid table.
template <class T>
NEZHA_INLINE void strips_of(const Sizes<T>& z, const Fold<T>& fold, int64_t reach, int64_t rows, const T* x, T* strips, T* space) {
  constexpr int n = lanes<T>(), together = kColumns / 2;
  T *sines = space, *cosines = sines + z.rows * z.half, *centre = cosines + z.rows * z.half;
  turn(z, fold, rows, x, sines, cosines, centre);
  if (fold.kept < fold.angles) {
    fold.reorder(rows, z.half, cosines);
    fold.reorder(rows, z.half, sines);
    const int64_t kept = fold.kept, others = fold.angles - kept, vectors = kept / n;
    product(rows, vectors, others, cosines + kept, z.half, 1, fold.to_kept(fold.cos_kept), cosines, z.half, true);
    product(rows, vectors, others, sines + kept, z.half, 1, fold.to_kept(fold.sin_kept), sines, z.half, true);
  }
  T* middle = strips + n + reach;
  const int64_t all_vectors = vectors_for<T>(fold.reach), used = z.sides / n;
  for (int64_t v = 0; v < used; v += together) {
    const int64_t panel = v / kColumns * kColumns, own = least<int64_t>(kColumns, all_vectors - panel) * n;
    const int64_t offset = panel * n * fold.kept + (v - panel) * n;
    const T *c = fold.cos_by_angle + offset, *s = fold.sin_by_angle + offset;
    if (used - v >= together)
      columns_of_strips<T, together>(rows, cosines, sines, z.half, c, s, own, fold.kept, v * n, middle, z.strip);
    else
      columns_of_strips<T, 1>(rows, cosines, sines, z.half, c, s, own, fold.kept, v * n, middle, z.strip);
  }
  for (int64_t i = 0; i < rows; i++) {
    middle[i * z.strip] = centre[i];
    fill_margins(reach, strips + i * z.strip);
  }
}
template <class T>
int64_t strips_space(const Sizes<T>& z) {
  return z.rows * (2 * z.half + 2 * z.sides + 1);
}

// The transpose: context [rows, wide] += strips of sums times the sinusoid table. The margins of the strips are 0.
template <class T>
NEZHA_INLINE void add_strips(const Sizes<T>& z, const Fold<T>& fold, int64_t reach, int64_t rows, const T* strips, T* context, T* space) {
  constexpr int n = lanes<T>();
  T *sines = space, *cosines = sines + z.rows * z.half, *even = cosines + z.rows * z.half, *odd = even + z.rows * z.sides;
  for (int64_t i = 0; i < rows; i++) {
    const T* middle = strips + i * z.strip + n + reach;
    for (int64_t t = 0; t < z.sides; t += n) {
      const Vector<T> after = load(middle + 1 + t), reversed = load(middle - t - n);
      const Vector<T> before = pick<T, Reverse>(reversed, reversed);
      store(even + i * z.sides + t, after + before);
      store(odd + i * z.sides + t, after - before);
    }
  }
  const int64_t kept = fold.kept, vectors = vectors_for<T>(kept);
  product(rows, vectors, reach, even, z.sides, 1, fold.by_distance(fold.cos_by_distance), cosines, z.half, false);
  product(rows, vectors, reach, odd, z.sides, 1, fold.by_distance(fold.sin_by_distance), sines, z.half, false);
  if (kept < fold.angles) {
    const Panels<T> to_cosines = fold.to_others(fold.cos_others), to_sines = fold.to_others(fold.sin_others);
    product(rows, to_cosines.vectors, kept, cosines, z.half, 1, to_cosines, cosines + kept, z.half, false);
    product(rows, to_sines.vectors, kept, sines, z.half, 1, to_sines, sines + kept, z.half, false);
    fold.reorder(rows, z.half, cosines);
    fold.reorder(rows, z.half, sines);
  }
  for (int64_t i = 0; i < rows; i++) {
    const T centre = strips[i * z.strip + n + reach];
    for (int64_t k = 0; k < z.half; k += n) {
      const Vector<T> c = load(fold.turn_cos + k), s = load(fold.turn_sin + k);
      const Vector<T> x = load(cosines + i * z.half + k) + centre, y = load(sines + i * z.half + k);
      const Vector<T> a = x * s + y * c, b = x * c - y * s;
      T* to = context + i * z.wide + 2 * k;
      store(to, load(to) + pick<T, ZipLow>(a, b));
      store(to + n, load(to + n) + pick<T, ZipHigh>(a, b));
    }
  }
}

// ---- rows of scores

// Where the vectors of a row's keys lie: [0, left) wholly before the reach, [right, end) wholly behind it.
struct Band {
  int64_t left, right;
};
template <class T>
NEZHA_INLINE Band band_of(int64_t query, int64_t reach, int64_t keys) {
  constexpr int n = lanes<T>();
  const int64_t left = least<int64_t>(most<int64_t>(0, (query - reach + 1) / n), keys / n);
  const int64_t right = least<int64_t>((query + reach + n - 1) / n, keys / n);
  return {left * n, most(left, right) * n};
}

template <class T>
constexpr T minus_infinity() {
  return -static_cast<T>(__builtin_inf());
}

template <class T>
NEZHA_INLINE void clear(T* strip, int64_t count) {
  for (int64_t i = 0; i < count; i += lanes<T>()) store(strip + i, Vector<T>{});
}

// Clears what a row's band will not write of its strip of sums.
template <class T>
NEZHA_INLINE void clear_around(const Band& band, int64_t shift, T* strip, int64_t count) {
  constexpr int n = lanes<T>();
  for (int64_t i = 0; i < shift + band.left; i += n) store(strip + i, Vector<T>{});
  // A query far behind the last visible key has all of its band before the strip.
  for (int64_t i = count - n; i >= most<int64_t>(0, shift + band.right - n + 1); i -= n) store(strip + i, Vector<T>{});
}

// Adds what lies in the margins of a strip of sums, and the tails, to its first and last entry; the margins are then 0, as
// they are from the start where no key is so far away.
template <class T>
NEZHA_INLINE void gather_margins(int64_t query, int64_t reach, int64_t keys, T* strip, T before, T behind) {
  constexpr int n = lanes<T>();
  if (query > reach) {
    strip[n] += before + Reduce<T>::sum(load(strip));
    store(strip, Vector<T>{});
  }
  if (query + reach < keys - 1) {
    T* last = strip + n + 2 * reach;
    *last += behind + Reduce<T>::sum(load(last + 1));
    store(last + 1, Vector<T>{});
  }
}

// How many rows take each step together. One row after another, a processor would wait for the sums over a short row; all
// rows at once, a long row would have left the nearest cache by the next step.
template <class T>
NEZHA_INLINE int64_t rows_together(int64_t keys) {
  return least<int64_t>(8, most<int64_t>(1, 16384 / static_cast<int64_t>(sizeof(T)) / keys));
}

// What a row has for hidden keys becomes `value`: -inf as a score. Not by adding: a product with what is hidden may be +inf.
template <class T>
NEZHA_INLINE void hide(int64_t keys, T* x, const T* hidden, T value) {
  for (int64_t j = 0; j < keys; j += lanes<T>()) store(x + j, load(hidden + j) < 0 ? all(value) : load(x + j));
}

// A row's largest score. Adds, in place, what hides keys (`hidden` [keys], 0 or -inf, or null) and, within the band, the
// relative scores (`bias`, the row's strip); the tails' constants stay with the tails.
template <class T, bool RELATIVE>
NEZHA_INLINE T largest_score(int64_t query, int64_t reach, int64_t keys, T* x, const T* hidden, const T* bias) {
  constexpr int n = lanes<T>();
  const Band band = RELATIVE ? band_of<T>(query, reach, keys) : Band{keys, keys};
  if (hidden) hide(keys, x, hidden, minus_infinity<T>());
  Vector<T> top = all(minus_infinity<T>());
  for (int64_t j = 0; j < band.left; j += n) top = larger<T>(top, load(x + j));
  if (RELATIVE) {
    top = top + bias[n];
    const T* at = bias + n + reach - query;
    for (int64_t j = band.left; j < band.right; j += n) {
      const Vector<T> score = load(x + j) + load(at + j);
      store(x + j, score);
      top = larger<T>(top, score);
    }
    Vector<T> last = all(minus_infinity<T>());
    for (int64_t j = band.right; j < keys; j += n) last = larger<T>(last, load(x + j));
    top = larger<T>(top, last + bias[n + 2 * reach]);
  }
  return Reduce<T>::largest(top);
}

// What a row's tails weigh the first and the last relative row by.
template <class T>
struct Tails {
  T before, behind;
};

// Scores, as `largest_score` left them, to unnormalised probabilities (times the dropout factors, where there are any), in
// place. `strip`, of `size` entries, was the row's relative scores and becomes what the relative rows are weighed by, its
// margins not yet gathered. Gives the sum of the row (without dropout) and its tails.
template <class T, bool RELATIVE, bool DROPPED>
NEZHA_INLINE T probabilities(int64_t query, int64_t reach, int64_t keys, T* x, T largest, const T* factors, T* strip,
                             int64_t size, Tails<T>* tails) {
  constexpr int n = lanes<T>();
  const Band band = RELATIVE ? band_of<T>(query, reach, keys) : Band{keys, keys};
  Vector<T> sum{}, dropped{};
  const auto weight = [&](int64_t j, Vector<T> score) {
    Vector<T> e = exponential(score);
    sum += e;
    if (DROPPED) e *= load(factors + j);
    store(x + j, e);
    return e;
  };
  const T before = (RELATIVE ? strip[n] : T(0)) - largest, behind = (RELATIVE ? strip[n + 2 * reach] : T(0)) - largest;
  for (int64_t j = 0; j < band.left; j += n) dropped += weight(j, load(x + j) + before);
  if (RELATIVE) {
    tails->before = band.left ? Reduce<T>::sum(dropped) : T(0);
    clear_around(band, n + reach - query, strip, size);
    T* at = strip + n + reach - query;
    for (int64_t j = band.left; j < band.right; j += n) store(at + j, weight(j, load(x + j) - largest));
    dropped = Vector<T>{};
    for (int64_t j = band.right; j < keys; j += n) dropped += weight(j, load(x + j) + behind);
    tails->behind = band.right < keys ? Reduce<T>::sum(dropped) : T(0);
  }
  return Reduce<T>::sum(sum);
}

// The backward's row. In: x scores, y the gradient's products with the values. Out: x the probabilities that weighed the
// values (with dropout's factors), y the gradient of the scores. `sums` of y, and `value_sums` of x where asked for, are
// strips whose margins are not yet gathered.
//
// The row is normalised again, and the mean that a softmax's gradient takes away is summed from the row itself: exp(score -
// log_sum_exp) alone is off by the rounding of two large numbers where scores are large, and the usual short cut for the
// mean, the gradient's product with the context, by what the context lost in rounding.
template <class T, bool RELATIVE, bool DROPPED>
NEZHA_INLINE void score_gradients(int64_t query, int64_t reach, int64_t keys, T* x, T* y, const T* hidden, const T* bias,
                                  const T* grad_bias, const T* factors, T log_sum, T* sums, T* value_sums, int64_t strip,
                                  Tails<T>* tails, Tails<T>* value_tails) {
  constexpr int n = lanes<T>();
  const Band band = RELATIVE ? band_of<T>(query, reach, keys) : Band{keys, keys};
  if (hidden) hide(keys, x, hidden, minus_infinity<T>());
  if (hidden) hide(keys, y, hidden, T(0));  // or a probability of 0 times what is no number would be none

  Vector<T> products{}, total{};
  const auto probability = [&](int64_t j, Vector<T> score, Vector<T> grad) {
    const Vector<T> p = exponential(score);
    if (DROPPED) grad *= load(factors + j);
    products += p * grad;
    total += p;
    store(x + j, p);
    store(y + j, grad);
  };
  const T before = RELATIVE ? bias[n] : T(0), grad_before = RELATIVE ? grad_bias[n] : T(0);
  for (int64_t j = 0; j < band.left; j += n) probability(j, load(x + j) + (before - log_sum), load(y + j) + grad_before);
  if (RELATIVE) {
    const T *at = bias + n + reach - query, *grad_at = grad_bias + n + reach - query;
    for (int64_t j = band.left; j < band.right; j += n)
      probability(j, load(x + j) + load(at + j) - log_sum, load(y + j) + load(grad_at + j));
    const T behind = bias[n + 2 * reach], grad_behind = grad_bias[n + 2 * reach];
    for (int64_t j = band.right; j < keys; j += n)
      probability(j, load(x + j) + (behind - log_sum), load(y + j) + grad_behind);
  }
  const T inverse = 1 / Reduce<T>::sum(total), mean = Reduce<T>::sum(products) * inverse;

  Vector<T> sum{}, value_sum{};
  const auto gradient = [&](int64_t j) {
    const Vector<T> p = load(x + j) * inverse, g = p * (load(y + j) - mean);
    const Vector<T> weight = DROPPED ? p * load(factors + j) : p;
    store(x + j, weight);
    store(y + j, g);
    sum += g;
    value_sum += weight;
  };
  for (int64_t j = 0; j < band.left; j += n) gradient(j);
  if (RELATIVE) {
    tails->before = Reduce<T>::sum(sum);
    if (value_sums) value_tails->before = Reduce<T>::sum(value_sum);
    const int64_t shift = n + reach - query;
    clear(sums, strip);
    if (value_sums) clear(value_sums, strip);
    for (int64_t j = band.left; j < band.right; j += n) {
      gradient(j);
      store(sums + shift + j, load(y + j));
      if (value_sums) store(value_sums + shift + j, load(x + j));
    }
    sum = value_sum = Vector<T>{};
    for (int64_t j = band.right; j < keys; j += n) gradient(j);
    tails->behind = Reduce<T>::sum(sum);
    if (value_sums) value_tails->behind = Reduce<T>::sum(value_sum);
  }
}

// ---- one sequence and head

template <class T>
struct Head {
  int64_t first, length, keys;  // the first token; tokens; keys up to the last visible one
  bool holes;                   // a hidden key before it
  int64_t width;                // N
  const T *query, *key, *value;
  const T *query_bias, *key_bias, *value_bias;  // [D]

  Head(const Call<T>& call, const Item& item) {
    first = call.starts[item.sequence];
    length = call.starts[item.sequence + 1] - first;
    const uint8_t* visible = call.visible + first;
    keys = length;
    while (keys > 0 && !visible[keys - 1]) keys--;
    holes = false;
    for (int64_t j = 0; j < keys; j++) holes |= !visible[j];
    width = static_cast<int64_t>(call.heads) * call.head_size;
    query = call.qkv + first * 3 * width + static_cast<int64_t>(item.head) * call.head_size;
    key = query + width;
    value = key + width;
    query_bias = call.bias + static_cast<int64_t>(item.head) * call.head_size;
    key_bias = query_bias + width;
    value_bias = key_bias + width;
  }
};

// A row of hidden keys: 0 where visible, -inf elsewhere. Null where only whole vectors of visible keys are read.
template <class T>
NEZHA_INLINE const T* hidden_keys(const Call<T>& call, const Head<T>& head, int64_t padded, T* hidden) {
  if (!head.holes) return nullptr;
  const uint8_t* visible = call.visible + head.first;
  for (int64_t j = 0; j < padded; j++) hidden[j] = j < head.keys && visible[j] ? T(0) : minus_infinity<T>();
  return hidden;
}

// Rows of hidden keys in panels [keys, D] to 0, since a weight of 0 times what is no number would be none.
template <class T>
NEZHA_INLINE void clear_hidden(const Call<T>& call, const Head<T>& head, T* panels) {
  const int64_t columns = call.head_size, vectors = vectors_for<T>(columns);
  for (int64_t i = 0; head.holes && i < head.keys; i++)
    for (int64_t j = 0; !call.visible[head.first + i] && j < columns; j += lanes<T>())
      store(panels + in_panels<T>(head.keys, vectors, i, j), Vector<T>{});
}

// rows [count, D], `row` apart, plus `bias` [D] (or null), times `scale`, to [count, wide] with zeros behind D.
template <class T>
NEZHA_INLINE void copy_scaled(const Sizes<T>& z, const T* from, int64_t row, const T* bias, int64_t count, T scale, T* to) {
  constexpr int n = lanes<T>();
  for (int64_t i = 0; i < count; i++, from += row, to += z.wide) {
    int64_t j = 0;
    for (; j + n <= z.head; j += n) store(to + j, (bias ? load(from + j) + load(bias + j) : load(from + j)) * scale);
    for (; j < z.head; j++) to[j] = (bias ? from[j] + bias[j] : from[j]) * scale;
    for (; j < z.wide; j++) to[j] = 0;
  }
}

template <class T>
NEZHA_INLINE void write_scaled(const Sizes<T>& z, const T* from, T scale, T* to) {
  constexpr int n = lanes<T>();
  int64_t j = 0;
  for (; j + n <= z.head; j += n) store(to + j, load(from + j) * scale);
  for (; j < z.head; j++) to[j] = from[j] * scale;
}

template <class T>
NEZHA_INLINE void add_row(const Sizes<T>& z, const T* row, T* sum) {
  constexpr int n = lanes<T>();
  int64_t j = 0;
  for (; j + n <= z.head; j += n) store(sum + j, load(sum + j) + load(row + j));
  for (; j < z.head; j++) sum[j] += row[j];
}

template <class T>
NEZHA_INLINE int64_t reach_within(const Call<T>& call, int64_t length) {
  if (call.encoding == Encoding::absolute) return 0;
  if (call.encoding == Encoding::parametric_relative) return call.reach;  // its tables are cut once for all sequences
  return least<int64_t>(call.reach, most<int64_t>(0, length - 1));
}

template <class T>
struct ForwardSpace {
  T *keys, *values, *hidden, *queries, *scores, *strips, *context, *factors, *space;
  int64_t size;
  ForwardSpace(const Sizes<T>& z, T* at) {
    Pieces<T> pieces(at);
    keys = pieces.take(z.keys * z.head);
    values = pieces.take(z.keys * z.wide);
    hidden = pieces.take(z.keys);
    queries = pieces.take(z.rows * z.wide);
    scores = pieces.take(z.rows * z.keys);
    strips = pieces.take(z.rows * z.strip);
    context = pieces.take(z.rows * z.wide);
    factors = pieces.take(z.keys);
    space = pieces.take(strips_space(z));
    size = pieces.used();
  }
};

template <class T, Encoding ENCODING, bool DROPPED>
void forward_of(const Call<T>& call, const Item& item, const T* fixed, T* scratch) {
  constexpr int n = lanes<T>();
  constexpr bool relative = ENCODING != Encoding::absolute;
  const Head<T> head(call, item);
  const int64_t reach = reach_within(call, head.length);
  const Sizes<T> z(call.head_size, static_cast<int>(reach), head.length);
  const ForwardSpace<T> at(z, scratch);
  const Fold<T> fold(call.reach, call.head_size, ENCODING == Encoding::functional_relative ? const_cast<T*>(fixed) : nullptr);
  const Learned<T> learned(call, const_cast<T*>(fixed));
  T* out = call.out + head.first * head.width + static_cast<int64_t>(item.head) * call.head_size;
  T* log_sum_exp = call.log_sum_exp + item.head * call.tokens + head.first;
  if (head.keys == 0) {
    for (int64_t i = item.first; i < item.last; i++) {
      for (int64_t j = 0; j < z.head; j++) out[i * head.width + j] = 0;
      log_sum_exp[i] = minus_infinity<T>();
    }
    return;
  }
  const int64_t keys = rounded_up(head.keys, n);
  pack_transposed(head.key, 3 * head.width, head.key_bias, head.keys, z.head, at.keys);
  pack(head.value, 3 * head.width, head.value_bias, head.keys, z.head, at.values);
  clear_hidden(call, head, at.values);
  const T* hidden = hidden_keys(call, head, keys, at.hidden);
  const T scale = static_cast<T>(1.0 / __builtin_sqrt(static_cast<double>(call.head_size)));
  for (int64_t first = item.first; first < item.last; first += z.rows) {
    const int64_t rows = least(z.rows, item.last - first);
    copy_scaled(z, head.query + first * 3 * head.width, 3 * head.width, head.query_bias, rows, scale, at.queries);
    if (ENCODING == Encoding::functional_relative) strips_of(z, fold, reach, rows, at.queries, at.strips, at.space);
    if (ENCODING == Encoding::parametric_relative) {
      product(rows, vectors_for<T>(learned.rows), z.head, at.queries, z.wide, 1, learned.by_column(learned.key_by_column),
              at.strips + n, z.strip, false);
      for (int64_t i = 0; i < rows; i++) fill_margins(reach, at.strips + i * z.strip);
    }
    product(rows, keys / n, z.head, at.queries, z.wide, 1, {at.keys, z.head, keys / n}, at.scores, z.keys, false);
    T inverse[kMostRows], largest[kMostRows];
    Tails<T> tails[kMostRows];
    const int64_t together = rows_together<T>(keys);
    for (int64_t start = 0; start < rows; start += together) {
      const int64_t end = least(start + together, rows);
      for (int64_t i = start; i < end; i++) {
        T* x = at.scores + i * z.keys;
        for (int64_t j = head.keys; j < keys; j++) x[j] = minus_infinity<T>();
        largest[i] = largest_score<T, relative>(first + i, reach, keys, x, hidden, at.strips + i * z.strip);
      }
      for (int64_t i = start; i < end; i++) {
        if (DROPPED) dropout_factors(call.seed, call.dropout, (head.first + first + i) * call.heads + item.head, keys, at.factors);
        const T total = probabilities<T, relative, DROPPED>(first + i, reach, keys, at.scores + i * z.keys, largest[i],
                                                            at.factors, at.strips + i * z.strip, z.strip, &tails[i]);
        inverse[i] = 1 / total;
        log_sum_exp[first + i] = largest[i] + logarithm(total);
      }
    }
    for (int64_t i = 0; relative && i < rows; i++)
      gather_margins<T>(first + i, reach, keys, at.strips + i * z.strip, tails[i].before, tails[i].behind);
    product(rows, z.head_vectors, head.keys, at.scores, z.keys, 1, {at.values, head.keys, z.head_vectors}, at.context,
            z.wide, false);
    if (ENCODING == Encoding::functional_relative) add_strips(z, fold, reach, rows, at.strips, at.context, at.space);
    if (ENCODING == Encoding::parametric_relative)
      product(rows, z.head_vectors, learned.rows, at.strips + n, z.strip, 1, learned.by_row(learned.value_by_row),
              at.context, z.wide, true);
    for (int64_t i = 0; i < rows; i++)
      write_scaled(z, at.context + i * z.wide, inverse[i], out + (first + i) * head.width);
  }
}

template <class T>
struct BackwardSpace {
  T *keys_across, *values_across, *keys, *hidden, *queries, *grads, *query_panels, *grad_panels, *scores, *products, *bias, *grad_strips, *sums, *value_sums, *grad_query, *grad_keys, *grad_values, *factors, *space;
  int64_t size;
  BackwardSpace(const Sizes<T>& z, bool learned, T* at) {
    Pieces<T> pieces(at);
    keys_across = pieces.take(z.keys * z.head);
    values_across = pieces.take(z.keys * z.head);
    keys = pieces.take(z.keys * z.wide);
    hidden = pieces.take(z.keys);
    queries = pieces.take(z.rows * z.wide);
    grads = pieces.take(z.rows * z.wide);
    query_panels = pieces.take(z.rows * z.wide);
    grad_panels = pieces.take(z.rows * z.wide);
    scores = pieces.take(z.rows * z.keys);
    products = pieces.take(z.rows * z.keys);
    bias = pieces.take(z.rows * z.strip);
    grad_strips = pieces.take(z.rows * z.strip);
    sums = pieces.take(z.rows * z.strip);
    value_sums = pieces.take(learned ? z.rows * z.strip : 0);
    grad_query = pieces.take(z.rows * z.wide);
    grad_keys = pieces.take(z.keys * z.wide);
    grad_values = pieces.take(z.keys * z.wide);
    factors = pieces.take(z.keys);
    space = pieces.take(strips_space(z));
    size = pieces.used();
  }
};

// Adds strips of sums, transposed, times rows to the gradient of a learned table [R, D].
template <class T>
void add_table_gradient(const Sizes<T>& z, const Learned<T>& learned, int64_t rows, const T* strips, const T* panels, T* to) {
  constexpr int64_t block = kRows;
  T part[block * 256 + 16];
  for (int64_t r = 0; r < learned.rows; r += block) {
    const int64_t count = least(block, learned.rows - r);
    product(count, z.head_vectors, rows, strips + lanes<T>() + r, 1, z.strip, {panels, rows, z.head_vectors}, part, z.wide,
            false);
    for (int64_t i = 0; i < count; i++)
      for (int64_t j = 0; j < z.head; j++) to[(r + i) * z.head + j] += part[i * z.wide + j];
  }
}

template <class T, Encoding ENCODING, bool DROPPED>
void backward_of(const Call<T>& call, const Item& item, const T* fixed, T* scratch, T* grad_bias, T* grad_tables) {
  constexpr int n = lanes<T>();
  constexpr bool relative = ENCODING != Encoding::absolute, is_learned = ENCODING == Encoding::parametric_relative;
  const Head<T> head(call, item);
  const int64_t reach = reach_within(call, head.length);
  const Sizes<T> z(call.head_size, static_cast<int>(reach), head.length);
  const BackwardSpace<T> at(z, is_learned, scratch);
  const Fold<T> fold(call.reach, call.head_size, ENCODING == Encoding::functional_relative ? const_cast<T*>(fixed) : nullptr);
  const Learned<T> learned(call, const_cast<T*>(fixed));
  const int64_t offset = head.first * head.width + static_cast<int64_t>(item.head) * call.head_size;
  const T* grad_out = call.grad_out + offset;
  const T* log_sum_exp = call.log_sum_exp + item.head * call.tokens + head.first;
  T* grad_query = call.grad_qkv + head.first * 3 * head.width + static_cast<int64_t>(item.head) * call.head_size;
  T *grad_key = grad_query + head.width, *grad_value = grad_key + head.width;
  const int64_t row = 3 * head.width, keys = rounded_up(head.keys, n);
  for (int64_t j = 0; j < 3 * z.head; j++) grad_bias[j] = 0;
  for (int64_t i = 0; i < head.length; i++)
    for (int64_t j = 0; j < z.head; j++) {
      if (head.keys == 0) grad_query[i * row + j] = 0;
      if (i >= head.keys) grad_key[i * row + j] = grad_value[i * row + j] = 0;
    }
  if (head.keys == 0) return;

  pack_transposed(head.key, row, head.key_bias, head.keys, z.head, at.keys_across);
  pack_transposed(head.value, row, head.value_bias, head.keys, z.head, at.values_across);
  pack(head.key, row, head.key_bias, head.keys, z.head, at.keys);
  clear_hidden(call, head, at.keys);
  const T* hidden = hidden_keys(call, head, keys, at.hidden);
  clear(at.grad_keys, head.keys * z.wide);
  clear(at.grad_values, head.keys * z.wide);
  const T scale = static_cast<T>(1.0 / __builtin_sqrt(static_cast<double>(call.head_size)));
  for (int64_t first = 0; first < head.length; first += z.rows) {
    const int64_t rows = least(z.rows, head.length - first);
    copy_scaled(z, head.query + first * row, row, head.query_bias, rows, scale, at.queries);
    copy_scaled<T>(z, grad_out + first * head.width, head.width, nullptr, rows, T(1), at.grads);
    pack<T>(at.queries, z.wide, nullptr, rows, z.head, at.query_panels);
    pack<T>(at.grads, z.wide, nullptr, rows, z.head, at.grad_panels);
    if (ENCODING == Encoding::functional_relative) {
      strips_of(z, fold, reach, rows, at.queries, at.bias, at.space);
      strips_of(z, fold, reach, rows, at.grads, at.grad_strips, at.space);
    }
    if (is_learned) {
      product(rows, vectors_for<T>(learned.rows), z.head, at.queries, z.wide, 1, learned.by_column(learned.key_by_column),
              at.bias + n, z.strip, false);
      product(rows, vectors_for<T>(learned.rows), z.head, at.grads, z.wide, 1, learned.by_column(learned.value_by_column),
              at.grad_strips + n, z.strip, false);
      for (int64_t i = 0; i < rows; i++) {
        fill_margins(reach, at.bias + i * z.strip);
        fill_margins(reach, at.grad_strips + i * z.strip);
      }
    }
    product(rows, keys / n, z.head, at.queries, z.wide, 1, {at.keys_across, z.head, keys / n}, at.scores, z.keys, false);
    product(rows, keys / n, z.head, at.grads, z.wide, 1, {at.values_across, z.head, keys / n}, at.products, z.keys, false);
    Tails<T> tails[kMostRows], value_tails[kMostRows];
    for (int64_t i = 0; i < rows; i++) {
      T *x = at.scores + i * z.keys, *y = at.products + i * z.keys;
      for (int64_t j = head.keys; j < keys; j++) x[j] = minus_infinity<T>();
      if (DROPPED) dropout_factors(call.seed, call.dropout, (head.first + first + i) * call.heads + item.head, keys, at.factors);
      score_gradients<T, relative, DROPPED>(first + i, reach, keys, x, y, hidden, at.bias + i * z.strip,
                                            at.grad_strips + i * z.strip, at.factors, log_sum_exp[first + i],
                                            at.sums + i * z.strip, is_learned ? at.value_sums + i * z.strip : nullptr,
                                            z.strip, &tails[i], &value_tails[i]);
    }
    for (int64_t i = 0; relative && i < rows; i++) {
      gather_margins<T>(first + i, reach, keys, at.sums + i * z.strip, tails[i].before, tails[i].behind);
      if (is_learned) gather_margins<T>(first + i, reach, keys, at.value_sums + i * z.strip, value_tails[i].before, value_tails[i].behind);
    }
    product(head.keys, z.head_vectors, rows, at.scores, 1, z.keys, {at.grad_panels, rows, z.head_vectors}, at.grad_values,
            z.wide, true);
    product(head.keys, z.head_vectors, rows, at.products, 1, z.keys, {at.query_panels, rows, z.head_vectors}, at.grad_keys,
            z.wide, true);
    product(rows, z.head_vectors, head.keys, at.products, z.keys, 1, {at.keys, head.keys, z.head_vectors}, at.grad_query,
            z.wide, false);
    if (ENCODING == Encoding::functional_relative) add_strips(z, fold, reach, rows, at.sums, at.grad_query, at.space);
    if (is_learned) {
      product(rows, z.head_vectors, learned.rows, at.sums + n, z.strip, 1, learned.by_row(learned.key_by_row), at.grad_query,
              z.wide, true);
      add_table_gradient(z, learned, rows, at.sums, at.query_panels, grad_tables);
      add_table_gradient(z, learned, rows, at.value_sums, at.grad_panels, grad_tables + learned.rows * z.head);
    }
    for (int64_t i = 0; i < rows; i++) {
      write_scaled(z, at.grad_query + i * z.wide, scale, grad_query + (first + i) * row);
      add_row(z, grad_query + (first + i) * row, grad_bias);
    }
  }
  for (int64_t j = 0; j < head.keys; j++) {
    write_scaled(z, at.grad_keys + j * z.wide, T(1), grad_key + j * row);
    write_scaled(z, at.grad_values + j * z.wide, T(1), grad_value + j * row);
    add_row(z, grad_key + j * row, grad_bias + z.head);
    add_row(z, grad_value + j * row, grad_bias + 2 * z.head);
  }
}

template <class T>
size_t scratch_size(const Call<T>& call, int64_t length, bool backward) {
  const Sizes<T> z(call.head_size, static_cast<int>(reach_within(call, length)), length);
  const bool learned = call.encoding == Encoding::parametric_relative;
  return static_cast<size_t>(backward ? BackwardSpace<T>(z, learned, nullptr).size : ForwardSpace<T>(z, nullptr).size);
}

template <class T, bool DROPPED>
void forward_with(const Call<T>& call, const Item& item, const T* fixed, T* scratch) {
  switch (call.encoding) {
    case Encoding::absolute: return forward_of<T, Encoding::absolute, DROPPED>(call, item, fixed, scratch);
    case Encoding::functional_relative:
      return forward_of<T, Encoding::functional_relative, DROPPED>(call, item, fixed, scratch);
    case Encoding::parametric_relative:
      return forward_of<T, Encoding::parametric_relative, DROPPED>(call, item, fixed, scratch);
  }
}
template <class T>
void forward(const Call<T>& call, const Item& item, const T* fixed, T* scratch) {
  call.dropout > 0 ? forward_with<T, true>(call, item, fixed, scratch) : forward_with<T, false>(call, item, fixed, scratch);
}

template <class T, bool DROPPED>
void backward_with(const Call<T>& call, const Item& item, const T* fixed, T* scratch, T* grad_bias, T* grad_tables) {
  switch (call.encoding) {
    case Encoding::absolute:
      return backward_of<T, Encoding::absolute, DROPPED>(call, item, fixed, scratch, grad_bias, grad_tables);
    case Encoding::functional_relative:
      return backward_of<T, Encoding::functional_relative, DROPPED>(call, item, fixed, scratch, grad_bias, grad_tables);
    case Encoding::parametric_relative:
      return backward_of<T, Encoding::parametric_relative, DROPPED>(call, item, fixed, scratch, grad_bias, grad_tables);
  }
}
template <class T>
void backward(const Call<T>& call, const Item& item, const T* fixed, T* scratch, T* grad_bias, T* grad_tables) {
  call.dropout > 0 ? backward_with<T, true>(call, item, fixed, scratch, grad_bias, grad_tables)
                   : backward_with<T, false>(call, item, fixed, scratch, grad_bias, grad_tables);
}

}  // namespace
}  // namespace NEZHA_SET
}  // namespace nezha
