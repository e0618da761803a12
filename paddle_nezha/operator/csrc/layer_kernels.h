// What lies between the products of a layer, one pass over memory each: bias and GELU; bias, dropout, residual and
// LayerNorm. Included by each instruction set's file after attention_kernels.h.
//
// Every kernel takes the rows first .. last - 1 and adds its sums over rows, the gradients of biases and of LayerNorm's own
// parameters, to `sums`.

namespace nezha {
namespace NEZHA_SET {
namespace {

// The first `count` lanes from memory, zeros behind; and back.
template <class T>
NEZHA_INLINE Vector<T> load_some(const T* from, int64_t count) {
  if (count >= lanes<T>()) return load(from);
  Vector<T> x{};
  for (int64_t i = 0; i < count; i++) x[i] = from[i];
  return x;
}
template <class T>
NEZHA_INLINE void store_some(T* to, Vector<T> x, int64_t count) {
  if (count >= lanes<T>()) return store(to, x);
  for (int64_t i = 0; i < count; i++) to[i] = x[i];
}
template <class T>
NEZHA_INLINE void add_some(T* to, Vector<T> x, int64_t count) {
  store_some(to, load_some(to, count) + x, count);
}

// ---- GELU: x F(x), F the normal distribution, F' its density

template <class T>
struct Normal {
  Vector<T> distribution, density;
};

// F(-|x|) = exp(-x^2 / 2) g(|x|) with a smooth g, g(0) = 1/2: a polynomial in 1 / (1 + |x| / 4), fitted to erfcx to 1.4e-8
// of its value for |x| up to 14, where the exponential ends.
NEZHA_INLINE Normal<float> normal(Vector<float> x) {
  const Vector<float> size = x < 0.0f ? -x : x;
  const Vector<float> bell = exponential(x * x * -0.5f);
  const Vector<float> t = 1.0f / (size * 0.25f + 1.0f);
  Vector<float> g = all<float>(3.3946684549e-02f);
  g = g * t - 1.9617712549e-01f;
  g = g * t + 3.9500099102e-01f;
  g = g * t - 3.3346868853e-01f;
  g = g * t + 3.0448643014e-01f;
  g = g * t - 2.0383824606e-02f;
  g = g * t + 1.2156786194e-01f;
  g = g * t + 9.4820267286e-02f;
  g = g * t + 1.0022899650e-01f;
  g = g * t - 2.1599996565e-05f;
  const Vector<float> tail = bell * g;
  return {x < 0.0f ? tail : 1.0f - tail, bell * 0.39894228040143268f};
}
NEZHA_INLINE Normal<double> normal(Vector<double> x) {  // to the last digits, by the C library
  Normal<double> result{};
  for (int i = 0; i < lanes<double>(); i++) {
    result.distribution[i] = 0.5 * __builtin_erfc(-x[i] * 0.70710678118654752440);
    result.density[i] = 0.39894228040143267794 * __builtin_exp(-0.5 * x[i] * x[i]);
  }
  return result;
}

template <class T>
void gelu_forward(const GeluCall<T>& call, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; i++) {
    const T* x = call.x + i * call.width;
    T* out = call.out + i * call.width;
    for (int64_t j = 0; j < call.width; j += lanes<T>()) {
      const int64_t count = call.width - j;
      const Vector<T> sum = load_some(x + j, count) + load_some(call.bias + j, count);
      store_some(out + j, sum * normal(sum).distribution, count);
    }
  }
}

// sums [width]: of the bias.
template <class T>
void gelu_backward(const GeluCall<T>& call, int64_t first, int64_t last, T* sums) {
  for (int64_t i = first; i < last; i++) {
    const int64_t row = i * call.width;
    for (int64_t j = 0; j < call.width; j += lanes<T>()) {
      const int64_t count = call.width - j;
      const Vector<T> x = load_some(call.x + row + j, count) + load_some(call.bias + j, count);
      const Normal<T> at = normal(x);
      const Vector<T> grad = load_some(call.grad_out + row + j, count) * (at.distribution + x * at.density);
      store_some(call.grad_x + row + j, grad, count);
      add_some(sums + j, grad, count);
    }
  }
}

// ---- LayerNorm(residual + dropout(x + bias))

// A row of the sum that is normalised, to `row`, with zeros behind its end; dropout's factors to `factors` where there are any.
template <class T>
NEZHA_INLINE void sum_row(const NormCall<T>& call, int64_t i, T* row, T* factors) {
  const T *x = call.x + i * call.width, *residual = call.residual + i * call.width;
  const bool dropped = call.dropout > 0;
  if (dropped) dropout_factors(call.seed, call.dropout, i, call.width, factors);
  for (int64_t j = 0; j < call.width; j += lanes<T>()) {
    const int64_t count = call.width - j;
    Vector<T> y = load_some(x + j, count) + load_some(call.bias + j, count);
    if (dropped) y *= load_some(factors + j, count);
    store(row + j, y + load_some(residual + j, count));
  }
}

template <class T>
size_t norm_scratch(int64_t width) {
  return 2 * static_cast<size_t>(rounded_up(width, 64 / sizeof(T)));
}

template <class T>
void norm_forward(const NormCall<T>& call, int64_t first, int64_t last, T* scratch) {
  constexpr int n = lanes<T>();
  T *row = scratch, *factors = scratch + norm_scratch<T>(call.width) / 2;
  for (int64_t i = first; i < last; i++) {
    sum_row(call, i, row, factors);
    Vector<T> sum{};
    for (int64_t j = 0; j < call.width; j += n) sum += load_some(row + j, call.width - j);
    const T mean = Reduce<T>::sum(sum) / static_cast<T>(call.width);
    Vector<T> squares{};
    T rest = 0;
    int64_t j = 0;
    for (; j + n <= call.width; j += n) {
      const Vector<T> apart = load(row + j) - mean;
      squares += apart * apart;
    }
    for (; j < call.width; j++) rest += (row[j] - mean) * (row[j] - mean);
    const T variance = (Reduce<T>::sum(squares) + rest) / static_cast<T>(call.width);
    const T inverse = 1 / square_root(variance + static_cast<T>(call.epsilon));
    call.mean[i] = mean;
    call.inverse[i] = inverse;
    T* out = call.out + i * call.width;
    for (j = 0; j < call.width; j += n) {
      const int64_t count = call.width - j;
      const Vector<T> scaled = (load(row + j) - mean) * inverse * load_some(call.weight + j, count);
      store_some(out + j, scaled + load_some(call.shift + j, count), count);
    }
  }
}

// sums [3, width]: of the bias, of LayerNorm's weight and of its shift.
template <class T>
void norm_backward(const NormCall<T>& call, int64_t first, int64_t last, T* scratch, T* sums) {
  constexpr int n = lanes<T>();
  T *row = scratch, *factors = scratch + norm_scratch<T>(call.width) / 2;
  T *bias_sums = sums, *weight_sums = sums + call.width, *shift_sums = weight_sums + call.width;
  const bool dropped = call.dropout > 0;
  for (int64_t i = first; i < last; i++) {
    const T* grad_out = call.grad_out + i * call.width;
    sum_row(call, i, row, factors);
    const T mean = call.mean[i], inverse = call.inverse[i];
    Vector<T> grads{}, products{};
    for (int64_t j = 0; j < call.width; j += n) {
      const int64_t count = call.width - j;
      const Vector<T> normed = (load(row + j) - mean) * inverse, out = load_some(grad_out + j, count);
      const Vector<T> grad = out * load_some(call.weight + j, count);  // 0 behind the row's end
      store(row + j, normed);
      grads += grad;
      products += grad * normed;
      add_some(weight_sums + j, out * normed, count);
      add_some(shift_sums + j, out, count);
    }
    const T mean_grad = Reduce<T>::sum(grads) / static_cast<T>(call.width);
    const T mean_product = Reduce<T>::sum(products) / static_cast<T>(call.width);
    for (int64_t j = 0; j < call.width; j += n) {
      const int64_t count = call.width - j;
      const Vector<T> grad = load_some(grad_out + j, count) * load_some(call.weight + j, count);
      Vector<T> back = (grad - mean_grad - load(row + j) * mean_product) * inverse;
      store_some(call.grad_residual + i * call.width + j, back, count);
      if (dropped) back *= load(factors + j);
      store_some(call.grad_x + i * call.width + j, back, count);
      add_some(bias_sums + j, back, count);
    }
  }
}

}  // namespace
}  // namespace NEZHA_SET
}  // namespace nezha
