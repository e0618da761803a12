// Vectors of whatever width the including file has chosen, by the compilers' vector extensions (GCC 8 and later, Clang).
// Included once by each instruction set's file, which defines NEZHA_BYTES, the width, and NEZHA_SET, its name.
//
// Everything is of internal linkage and nothing inline is taken from the standard library: the linker must never pick,
// for other code, a function compiled for a processor that code may not run on.

#include <utility>

namespace nezha {
namespace NEZHA_SET {
namespace {

#define NEZHA_INLINE inline __attribute__((always_inline))

template <class T>
struct Of;
template <>
struct Of<float> {
  typedef float Vector __attribute__((vector_size(NEZHA_BYTES)));
  typedef float Loose __attribute__((vector_size(NEZHA_BYTES), aligned(4), may_alias));
  typedef uint32_t Bits __attribute__((vector_size(NEZHA_BYTES)));
};
template <>
struct Of<double> {
  typedef double Vector __attribute__((vector_size(NEZHA_BYTES)));
  typedef double Loose __attribute__((vector_size(NEZHA_BYTES), aligned(8), may_alias));
  typedef uint64_t Bits __attribute__((vector_size(NEZHA_BYTES)));
};
template <class T>
using Vector = typename Of<T>::Vector;

template <class T>
constexpr int lanes() {
  return NEZHA_BYTES / static_cast<int>(sizeof(T));
}

template <class T>
NEZHA_INLINE Vector<T> load(const T* from) {
  return *reinterpret_cast<const typename Of<T>::Loose*>(from);
}
template <class T>
NEZHA_INLINE void store(T* to, Vector<T> x) {
  *reinterpret_cast<typename Of<T>::Loose*>(to) = x;
}
template <class T>
NEZHA_INLINE Vector<T> all(T x) {
  return x - Vector<T>{};  // x - 0 is x, which x + 0 is not for -0: this one the compiler takes for a broadcast
}

template <class T>
NEZHA_INLINE T least(T a, T b) {
  return b < a ? b : a;
}
template <class T>
NEZHA_INLINE T most(T a, T b) {
  return a < b ? b : a;
}
template <class T>
NEZHA_INLINE Vector<T> larger(Vector<T> a, Vector<T> b) {
  return a > b ? a : b;
}

// Lane i of the result is lane Order::of(i, lanes) of a followed by b.
template <class T, class Order, int... I>
NEZHA_INLINE Vector<T> picked(Vector<T> a, Vector<T> b, std::integer_sequence<int, I...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, Order::of(I, lanes<T>())...);
#else
  return __builtin_shuffle(a, b, typename Of<T>::Bits{Order::of(I, lanes<T>())...});
#endif
}
template <class T, class Order>
NEZHA_INLINE Vector<T> pick(Vector<T> a, Vector<T> b) {
  return picked<T, Order>(a, b, std::make_integer_sequence<int, lanes<T>()>());
}
struct Even { static constexpr int of(int i, int) { return 2 * i; } };
struct Odd { static constexpr int of(int i, int) { return 2 * i + 1; } };
struct Reverse { static constexpr int of(int i, int n) { return n - 1 - i; } };
struct ZipLow { static constexpr int of(int i, int n) { return i / 2 + (i % 2 ? n : 0); } };
struct ZipHigh { static constexpr int of(int i, int n) { return i / 2 + n / 2 + (i % 2 ? n : 0); } };
template <int D>
struct Across { static constexpr int of(int i, int) { return i ^ D; } };

template <class T, int D = lanes<T>() / 2>
struct Reduce {
  static NEZHA_INLINE T sum(Vector<T> x) { return Reduce<T, D / 2>::sum(x + pick<T, Across<D>>(x, x)); }
  static NEZHA_INLINE T largest(Vector<T> x) { return Reduce<T, D / 2>::largest(larger<T>(x, pick<T, Across<D>>(x, x))); }
};
template <class T>
struct Reduce<T, 0> {
  static NEZHA_INLINE T sum(Vector<T> x) { return x[0]; }
  static NEZHA_INLINE T largest(Vector<T> x) { return x[0]; }
};

// exp(x) for x <= 0 (a little above is as good): below 1 ulp off; 0 where the result would not be a normal number; NaN
// stays NaN. x = n ln 2 + r with |r| <= ln 2 / 2, n by adding and taking away 1.5 * 2^23 (2^52), whose last bits then
// hold n; ln 2 in two parts, the first of so few bits that n times it is exact. The polynomials are Taylor's, long enough
// that what they leave out is below a tenth of an ulp.
NEZHA_INLINE Vector<float> exponential(Vector<float> x) {
  const Vector<float> shifted = x * 1.44269504088896341f + 12582912.0f;
  const Vector<float> n = shifted - 12582912.0f;
  Vector<float> r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vector<float> p = all<float>(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * (r * r) + r;
  p = p + 1.0f;
  const Of<float>::Bits power = ((Of<float>::Bits)shifted << 23) + 0x3F800000u;
  const Vector<float> result = p * (Vector<float>)power;
  return x <= -87.3365447f ? Vector<float>{} : result;
}
NEZHA_INLINE Vector<double> exponential(Vector<double> x) {
  const Vector<double> shifted = x * 1.4426950408889634074 + 6755399441055744.0;
  const Vector<double> n = shifted - 6755399441055744.0;
  Vector<double> r = x - n * 6.93147180369123816490e-1;
  r = r - n * 1.90821492927058770002e-10;
  Vector<double> p = all<double>(1.0 / 6227020800);
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * (r * r) + r;
  p = p + 1.0;
  const Of<double>::Bits power = ((Of<double>::Bits)shifted << 52) + 0x3FF0000000000000ull;
  const Vector<double> result = p * (Vector<double>)power;
  return x <= -708.3964185322641 ? Vector<double>{} : result;
}

NEZHA_INLINE float logarithm(float x) { return __builtin_logf(x); }
NEZHA_INLINE double logarithm(double x) { return __builtin_log(x); }
NEZHA_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
NEZHA_INLINE double square_root(double x) { return __builtin_sqrt(x); }

}  // namespace
}  // namespace NEZHA_SET
}  // namespace nezha
