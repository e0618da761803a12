// The operators as Paddle sees them. Everything is checked here, in the backward as in the forward: the kernels trust what
// they are given.

#include <paddle/extension.h>
#include <paddle/phi/core/enforce.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "kernels.h"
#include "running.h"

namespace {

using paddle::DataType;
using paddle::Tensor;
using OptionalTensor = paddle::optional<Tensor>;
using Shape = std::vector<int64_t>;

// Paddle's own threads, as many as it uses itself: this library is linked with Paddle's OpenMP. That one knows the
// parallel region alone of what GCC makes of OpenMP; the functions of a parallel loop would come from another OpenMP in
// the process, which knows nothing of these threads, and each would run the whole loop. So the loop is ours.
nezha::Parallel paddle_threads() {
#ifdef _OPENMP
  const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
#else
  const int threads = 1;
#endif
  return {threads, [threads](int64_t count, const std::function<void(int64_t)>& work) {
            std::exception_ptr failure;
            std::mutex mutex;
            std::atomic<int64_t> next(0);
            const auto run = [&] {
              for (int64_t i = next++; i < count; i = next++) {
                try {  // an exception may not leave a thread of the team
                  work(i);
                } catch (...) {
                  const std::lock_guard<std::mutex> lock(mutex);
                  if (!failure) failure = std::current_exception();
                }
              }
            };
            if (threads > 1 && count > 1) {
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#endif
              run();
            } else {
              run();
            }
            if (failure) std::rethrow_exception(failure);
          }};
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); i++) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}
std::string text_of(const Tensor& given) {
  if (!given.defined()) return "none";
  return phi::DataTypeToString(given.dtype()) + " " + shape_text(given.shape()) + (given.is_cpu() ? "" : ", not on a CPU");
}

// The exception that arrives with its message wherever an operator runs. Paddle's executors of traced graphs end the
// process at any other, or lose its message, and so does eager mode at those that are not Paddle's.
[[noreturn]] void refuse(const std::string& message) { PADDLE_THROW(phi::errors::InvalidArgument("%s", message)); }

void require(bool fits, const std::string& expected, const std::string& got) {
  if (!fits) refuse("The operator expects " + expected + ", but got " + got + ".");
}

// A tensor that a kernel reads: on a CPU, of this dtype and shape.
void require_tensor(const char* name, const Tensor& given, DataType type, const Shape& shape) {
  if (given.defined() && given.is_cpu() && given.dtype() == type && given.shape() == shape) return;
  require(false, std::string(name) + " " + phi::DataTypeToString(type) + " " + shape_text(shape) + " on a CPU", text_of(given));
}
// The one whose dtype all others must have.
void require_floating(const char* name, const Tensor& given) {
  if (given.defined() && given.is_cpu() && (given.dtype() == DataType::FLOAT32 || given.dtype() == DataType::FLOAT64)) return;
  require(false, std::string(name) + " in float32 or float64 on a CPU", text_of(given));
}

int64_t product_of(const Shape& shape, size_t count) {
  int64_t total = 1;
  for (size_t i = 0; i < count; i++) total *= shape[i];
  return total;
}

// Two draws of 32 bits as one seed.
uint64_t seed_of(const OptionalTensor& seed, float dropout) {
  require(dropout >= 0.0f && dropout <= 1.0f, "a dropout of 0 .. 1", std::to_string(dropout));
  if (dropout == 0.0f) return 0;
  require(static_cast<bool>(seed), "a seed beside a dropout", "none");
  require_tensor("seed", *seed, DataType::INT64, {2});
  const int64_t* halves = seed->data<int64_t>();
  return (static_cast<uint64_t>(halves[0]) << 32) ^ static_cast<uint64_t>(halves[1]);
}

struct Settings {
  int heads, max_relative_position;
  float dropout;
  nezha::Encoding encoding;
};

// What a call reads, checked. Holds what the call points into.
template <class T>
struct Arguments {
  nezha::Call<T> call{};
  std::vector<int32_t> rows;
  std::vector<uint8_t> all_visible;

  Arguments(const Tensor& qkv, const Tensor& bias, const Tensor* tables, const OptionalTensor& visible, const OptionalTensor& starts,
            const OptionalTensor& seed, const Settings& settings) {
    const int heads = settings.heads, reach = settings.max_relative_position;
    const float dropout = settings.dropout;
    const Shape shape = qkv.shape();
    require(shape.size() == 2 || shape.size() == 3, "qkv [tokens, 3N] or [batch, length, 3N]", shape_text(shape));
    const int64_t width = shape.back();
    require(heads > 0 && width > 0 && width % (3 * static_cast<int64_t>(heads)) == 0,
            "qkv as wide as 3 * heads * head size", std::to_string(width) + " columns for " + std::to_string(heads) + " heads");
    const int64_t head_size = width / 3 / heads;
    require(head_size % 2 == 0 && head_size <= 256, "an even head size of at most 256", std::to_string(head_size));
    require(reach >= (tables ? 1 : 0) && reach <= (1 << 20), "max_relative_position of 1 to 2^20 (or 0 for none)",
            std::to_string(reach));
    require_tensor("bias", bias, qkv.dtype(), {width});
    call.qkv = qkv.data<T>();
    call.bias = bias.data<T>();
    call.tokens = product_of(shape, shape.size() - 1);
    require(call.tokens < (int64_t(1) << 31), "fewer than 2^31 tokens", std::to_string(call.tokens));
    call.heads = heads;
    call.head_size = static_cast<int>(head_size);
    call.reach = reach;
    call.encoding = settings.encoding;
    call.dropout = dropout;

    if (shape.size() == 3) {
      require(!starts, "no starts beside qkv [batch, length, 3N]", "both");
      for (int64_t row = 0; row <= shape[0]; row++) rows.push_back(static_cast<int32_t>(row * shape[1]));
    } else {
      require(static_cast<bool>(starts), "starts beside qkv [tokens, 3N]", "none");
      require_tensor("starts", *starts, DataType::INT32, {std::max<int64_t>(1, starts->numel())});
      rows.assign(starts->data<int32_t>(), starts->data<int32_t>() + starts->numel());
      bool ordered = rows.front() == 0 && rows.back() == call.tokens;
      for (size_t i = 1; i < rows.size(); i++) ordered = ordered && rows[i - 1] <= rows[i];
      require(ordered, "starts that rise from 0 to the number of tokens, " + std::to_string(call.tokens), "others");
    }
    call.starts = rows.data();
    call.sequences = static_cast<int64_t>(rows.size()) - 1;

    if (visible) {
      require(visible->is_cpu() && visible->dtype() == DataType::BOOL && visible->numel() == call.tokens,
              "visible bool, one for each of " + std::to_string(call.tokens) + " tokens, on a CPU", text_of(*visible));
      call.visible = reinterpret_cast<const uint8_t*>(visible->data<bool>());
    } else {
      all_visible.assign(static_cast<size_t>(call.tokens), 1);
      call.visible = all_visible.data();
    }
    if (tables) {
      require_tensor("tables", *tables, qkv.dtype(), {2, 2 * static_cast<int64_t>(reach) + 1, head_size});
      call.tables = tables->data<T>();
    }
    call.seed = seed_of(seed, dropout);
  }
};

// Shapes are inferred before anything is checked, and where nothing may be thrown.
Shape out_shape(Shape qkv) {
  if (!qkv.empty() && qkv.back() > 0) qkv.back() /= 3;
  return qkv;
}
Shape log_sum_exp_shape(const Shape& qkv, int heads) {
  Shape shape{heads};
  if (!qkv.empty()) shape.insert(shape.end(), qkv.begin(), qkv.end() - 1);
  return shape;
}

// Refuses what the work throws, unless it is Paddle's own.
template <class Work>
std::vector<Tensor> guarded(const Work& work) {
  std::string message;
  try {
    return work();
  } catch (const std::logic_error& error) {
    message = error.what();
  } catch (const std::bad_alloc&) {
    message = "The operator could not get the memory it works in.";
  }
  refuse(message);
}

template <class T>
std::vector<Tensor> forward_as(const Tensor& qkv, const Tensor& bias, const Tensor* tables, const OptionalTensor& visible,
                               const OptionalTensor& starts, const OptionalTensor& seed, const Settings& settings) {
  Arguments<T> given(qkv, bias, tables, visible, starts, seed, settings);
  Tensor out = paddle::empty(out_shape(qkv.shape()), qkv.dtype(), qkv.place());
  Tensor log_sum_exp = paddle::empty(log_sum_exp_shape(qkv.shape(), settings.heads), qkv.dtype(), qkv.place());
  given.call.out = out.data<T>();
  given.call.log_sum_exp = log_sum_exp.data<T>();
  nezha::run_forward(given.call, paddle_threads());
  return {out, log_sum_exp};
}

std::vector<Tensor> forward_of(const Tensor& qkv, const Tensor& bias, const Tensor* tables, const OptionalTensor& visible,
                               const OptionalTensor& starts, const OptionalTensor& seed, const Settings& settings) {
  require_floating("qkv", qkv);
  return guarded([&] {
    return qkv.dtype() == DataType::FLOAT64 ? forward_as<double>(qkv, bias, tables, visible, starts, seed, settings)
                                            : forward_as<float>(qkv, bias, tables, visible, starts, seed, settings);
  });
}

template <class T>
std::vector<Tensor> backward_as(const Tensor& qkv, const Tensor& bias, const Tensor* tables, const OptionalTensor& visible,
                                const OptionalTensor& starts, const OptionalTensor& seed,
                                const Tensor& log_sum_exp, const Tensor& grad_out, const Settings& settings) {
  Arguments<T> given(qkv, bias, tables, visible, starts, seed, settings);
  require_tensor("log_sum_exp", log_sum_exp, qkv.dtype(), log_sum_exp_shape(qkv.shape(), settings.heads));
  require_tensor("a gradient of the context", grad_out, qkv.dtype(), out_shape(qkv.shape()));
  std::vector<Tensor> grads{paddle::empty(qkv.shape(), qkv.dtype(), qkv.place()),
                            paddle::empty(bias.shape(), qkv.dtype(), qkv.place())};
  if (tables) grads.push_back(paddle::empty(tables->shape(), qkv.dtype(), qkv.place()));
  given.call.log_sum_exp = const_cast<T*>(log_sum_exp.data<T>());
  given.call.grad_out = grad_out.data<T>();
  given.call.grad_qkv = grads[0].data<T>();
  nezha::run_backward<T>(given.call, grads[1].data<T>(), tables ? grads[2].data<T>() : nullptr, paddle_threads());
  return grads;
}

std::vector<Tensor> backward_of(const Tensor& qkv, const Tensor& bias, const Tensor* tables, const OptionalTensor& visible,
                                const OptionalTensor& starts, const OptionalTensor& seed,
                                const Tensor& log_sum_exp, const Tensor& grad_out, const Settings& settings) {
  require_floating("qkv", qkv);
  return guarded([&] {
    return qkv.dtype() == DataType::FLOAT64
               ? backward_as<double>(qkv, bias, tables, visible, starts, seed, log_sum_exp, grad_out, settings)
               : backward_as<float>(qkv, bias, tables, visible, starts, seed, log_sum_exp, grad_out, settings);
  });
}

using OptionalShape = paddle::optional<Shape>;
using OptionalType = paddle::optional<DataType>;

// ---- nezha_attention: the sinusoid table, or (max_relative_position = 0) no relative part

Settings fixed_settings(int heads, int max_relative_position, float dropout) {
  const auto encoding =
      max_relative_position == 0 ? nezha::Encoding::absolute : nezha::Encoding::functional_relative;
  return {heads, max_relative_position, dropout, encoding};
}
std::vector<Tensor> forward(const Tensor& qkv, const Tensor& bias, const OptionalTensor& visible, const OptionalTensor& starts,
                            const OptionalTensor& seed, int heads, int max_relative_position, float dropout) {
  return forward_of(qkv, bias, nullptr, visible, starts, seed, fixed_settings(heads, max_relative_position, dropout));
}
std::vector<Tensor> backward(const Tensor& qkv, const Tensor& bias, const OptionalTensor& visible, const OptionalTensor& starts,
                             const OptionalTensor& seed, const Tensor& log_sum_exp, const Tensor& grad_out, int heads, int max_relative_position, float dropout) {
  return backward_of(qkv, bias, nullptr, visible, starts, seed, log_sum_exp, grad_out,
                     fixed_settings(heads, max_relative_position, dropout));
}
std::vector<Shape> infer_shape(const Shape& qkv, const Shape&, const OptionalShape&, const OptionalShape&, const OptionalShape&,
                               int heads, int, float) {
  return {out_shape(qkv), log_sum_exp_shape(qkv, heads)};
}
std::vector<DataType> infer_type(const DataType& qkv, const DataType&, const OptionalType&, const OptionalType&, const OptionalType&) {
  return {qkv, qkv};
}

// ---- nezha_attention_learned: learned tables. An operator of its own, since Paddle knows no gradient of an input that
// may be left out.

Settings learned_settings(int heads, int max_relative_position, float dropout) {
  return {heads, max_relative_position, dropout, nezha::Encoding::parametric_relative};
}
std::vector<Tensor> forward_learned(const Tensor& qkv, const Tensor& bias, const Tensor& tables, const OptionalTensor& visible,
                                    const OptionalTensor& starts, const OptionalTensor& seed, int heads,
                                    int max_relative_position, float dropout) {
  return forward_of(qkv, bias, &tables, visible, starts, seed, learned_settings(heads, max_relative_position, dropout));
}
std::vector<Tensor> backward_learned(const Tensor& qkv, const Tensor& bias, const Tensor& tables, const OptionalTensor& visible,
                                     const OptionalTensor& starts, const OptionalTensor& seed,
                                     const Tensor& log_sum_exp, const Tensor& grad_out, int heads,
                                     int max_relative_position, float dropout) {
  return backward_of(qkv, bias, &tables, visible, starts, seed, log_sum_exp, grad_out,
                     learned_settings(heads, max_relative_position, dropout));
}
std::vector<Shape> infer_shape_learned(const Shape& qkv, const Shape&, const Shape&, const OptionalShape&, const OptionalShape&,
                                       const OptionalShape&, int heads, int, float) {
  return {out_shape(qkv), log_sum_exp_shape(qkv, heads)};
}
std::vector<DataType> infer_type_learned(const DataType& qkv, const DataType&, const DataType&, const OptionalType&, const OptionalType&,
                                         const OptionalType&) {
  return {qkv, qkv};
}

// ---- nezha_gelu: GELU(x + bias)

// x [..., width], and parameters [width].
void require_rows(const Tensor& x, const Tensor& bias) {
  require_floating("x", x);
  require(!x.shape().empty() && x.shape().back() > 0, "rows", text_of(x));
  require_tensor("bias", bias, x.dtype(), {x.shape().back()});
}

template <class T>
nezha::GeluCall<T> gelu_call(const Tensor& x, const Tensor& bias) {
  nezha::GeluCall<T> call{};
  call.x = x.data<T>();
  call.bias = bias.data<T>();
  call.width = x.shape().back();
  call.rows = x.numel() / call.width;
  return call;
}
template <class T>
std::vector<Tensor> gelu_as(const Tensor& x, const Tensor& bias) {
  nezha::GeluCall<T> call = gelu_call<T>(x, bias);
  Tensor out = paddle::empty(x.shape(), x.dtype(), x.place());
  call.out = out.data<T>();
  nezha::run_gelu_forward(call, paddle_threads());
  return {out};
}
template <class T>
std::vector<Tensor> gelu_grad_as(const Tensor& x, const Tensor& bias, const Tensor& grad_out) {
  nezha::GeluCall<T> call = gelu_call<T>(x, bias);
  Tensor grad_x = paddle::empty(x.shape(), x.dtype(), x.place());
  Tensor grad_bias = paddle::empty(bias.shape(), x.dtype(), x.place());
  call.grad_out = grad_out.data<T>();
  call.grad_x = grad_x.data<T>();
  nezha::run_gelu_backward(call, grad_bias.data<T>(), paddle_threads());
  return {grad_x, grad_bias};
}
std::vector<Tensor> gelu(const Tensor& x, const Tensor& bias) {
  require_rows(x, bias);
  return guarded([&] { return x.dtype() == DataType::FLOAT64 ? gelu_as<double>(x, bias) : gelu_as<float>(x, bias); });
}
std::vector<Tensor> gelu_grad(const Tensor& x, const Tensor& bias, const Tensor& grad_out) {
  require_rows(x, bias);
  require_tensor("a gradient of the output", grad_out, x.dtype(), x.shape());
  return guarded([&] {
    return x.dtype() == DataType::FLOAT64 ? gelu_grad_as<double>(x, bias, grad_out) : gelu_grad_as<float>(x, bias, grad_out);
  });
}
std::vector<Shape> gelu_shape(const Shape& x, const Shape&) { return {x}; }
std::vector<DataType> gelu_type(const DataType& x, const DataType&) { return {x}; }

// ---- nezha_norm: LayerNorm(residual + dropout(x + bias))

void require_norm(const Tensor& x, const Tensor& residual, const Tensor& bias, const Tensor& weight, const Tensor& shift) {
  require_rows(x, bias);
  require_tensor("residual", residual, x.dtype(), x.shape());
  require_tensor("weight", weight, x.dtype(), bias.shape());
  require_tensor("shift", shift, x.dtype(), bias.shape());
}
Shape rows_shape(const Shape& x) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < x.size(); i++) rows = x[i] < 0 || rows < 0 ? -1 : rows * x[i];
  return {rows};
}

template <class T>
nezha::NormCall<T> norm_call(const Tensor& x, const Tensor& residual, const Tensor& bias, const Tensor& weight,
                             const Tensor& shift, const OptionalTensor& seed, float epsilon, float dropout) {
  nezha::NormCall<T> call{};
  call.x = x.data<T>();
  call.residual = residual.data<T>();
  call.bias = bias.data<T>();
  call.weight = weight.data<T>();
  call.shift = shift.data<T>();
  call.width = x.shape().back();
  call.rows = x.numel() / call.width;
  call.epsilon = epsilon;
  call.dropout = dropout;
  call.seed = seed_of(seed, dropout);
  return call;
}
template <class T>
std::vector<Tensor> norm_as(const Tensor& x, const Tensor& residual, const Tensor& bias, const Tensor& weight,
                            const Tensor& shift, const OptionalTensor& seed, float epsilon, float dropout) {
  nezha::NormCall<T> call = norm_call<T>(x, residual, bias, weight, shift, seed, epsilon, dropout);
  Tensor out = paddle::empty(x.shape(), x.dtype(), x.place());
  Tensor mean = paddle::empty({call.rows}, x.dtype(), x.place()), inverse = paddle::empty({call.rows}, x.dtype(), x.place());
  call.out = out.data<T>();
  call.mean = mean.data<T>();
  call.inverse = inverse.data<T>();
  nezha::run_norm_forward(call, paddle_threads());
  return {out, mean, inverse};
}
template <class T>
std::vector<Tensor> norm_grad_as(const Tensor& x, const Tensor& residual, const Tensor& bias, const Tensor& weight,
                                 const Tensor& shift, const OptionalTensor& seed, const Tensor& mean,
                                 const Tensor& inverse, const Tensor& grad_out, float epsilon, float dropout) {
  nezha::NormCall<T> call = norm_call<T>(x, residual, bias, weight, shift, seed, epsilon, dropout);
  Tensor grad_x = paddle::empty(x.shape(), x.dtype(), x.place());
  Tensor grad_residual = paddle::empty(x.shape(), x.dtype(), x.place());
  call.mean = const_cast<T*>(mean.data<T>());
  call.inverse = const_cast<T*>(inverse.data<T>());
  call.grad_out = grad_out.data<T>();
  call.grad_x = grad_x.data<T>();
  call.grad_residual = grad_residual.data<T>();
  std::vector<T> sums(3 * static_cast<size_t>(call.width));
  nezha::run_norm_backward(call, sums.data(), paddle_threads());
  std::vector<Tensor> grads{grad_x, grad_residual};
  const Tensor* parameters[] = {&bias, &weight, &shift};
  for (int i = 0; i < 3; i++) {
    grads.push_back(paddle::empty(parameters[i]->shape(), x.dtype(), x.place()));
    std::copy_n(&sums[static_cast<size_t>(i * call.width)], call.width, grads.back().template data<T>());
  }
  return grads;
}
std::vector<Tensor> norm(const Tensor& x, const Tensor& residual, const Tensor& bias, const Tensor& weight,
                         const Tensor& shift, const OptionalTensor& seed, float epsilon, float dropout) {
  require_norm(x, residual, bias, weight, shift);
  return guarded([&] {
    return x.dtype() == DataType::FLOAT64 ? norm_as<double>(x, residual, bias, weight, shift, seed, epsilon, dropout)
                                          : norm_as<float>(x, residual, bias, weight, shift, seed, epsilon, dropout);
  });
}
std::vector<Tensor> norm_grad(const Tensor& x, const Tensor& residual, const Tensor& bias, const Tensor& weight,
                              const Tensor& shift, const OptionalTensor& seed, const Tensor& mean, const Tensor& inverse,
                              const Tensor& grad_out, float epsilon, float dropout) {
  require_norm(x, residual, bias, weight, shift);
  require_tensor("mean", mean, x.dtype(), rows_shape(x.shape()));
  require_tensor("inverse", inverse, x.dtype(), rows_shape(x.shape()));
  require_tensor("a gradient of the output", grad_out, x.dtype(), x.shape());
  return guarded([&] {
    return x.dtype() == DataType::FLOAT64
               ? norm_grad_as<double>(x, residual, bias, weight, shift, seed, mean, inverse, grad_out, epsilon, dropout)
               : norm_grad_as<float>(x, residual, bias, weight, shift, seed, mean, inverse, grad_out, epsilon, dropout);
  });
}
std::vector<Shape> norm_shape(const Shape& x, const Shape&, const Shape&, const Shape&, const Shape&, const OptionalShape&,
                              float, float) {
  return {x, rows_shape(x), rows_shape(x)};
}
std::vector<DataType> norm_type(const DataType& x, const DataType&, const DataType&, const DataType&, const DataType&,
                                const OptionalType&) {
  return {x, x, x};
}

}  // namespace

PD_BUILD_OP(nezha_attention)
    .Inputs({"QKV", "Bias", paddle::Optional("Visible"), paddle::Optional("Starts"), paddle::Optional("Seed")})
    .Outputs({"Out", "LogSumExp"})
    .Attrs({"heads: int", "max_relative_position: int", "dropout: float"})
    .SetKernelFn(PD_KERNEL(forward))
    .SetInferShapeFn(PD_INFER_SHAPE(infer_shape))
    .SetInferDtypeFn(PD_INFER_DTYPE(infer_type));

PD_BUILD_GRAD_OP(nezha_attention)
    .Inputs({"QKV", "Bias", paddle::Optional("Visible"), paddle::Optional("Starts"), paddle::Optional("Seed"),
             "LogSumExp", paddle::Grad("Out")})
    .Outputs({paddle::Grad("QKV"), paddle::Grad("Bias")})
    .Attrs({"heads: int", "max_relative_position: int", "dropout: float"})
    .SetKernelFn(PD_KERNEL(backward));

PD_BUILD_OP(nezha_attention_learned)
    .Inputs({"QKV", "Bias", "Tables", paddle::Optional("Visible"), paddle::Optional("Starts"), paddle::Optional("Seed")})
    .Outputs({"Out", "LogSumExp"})
    .Attrs({"heads: int", "max_relative_position: int", "dropout: float"})
    .SetKernelFn(PD_KERNEL(forward_learned))
    .SetInferShapeFn(PD_INFER_SHAPE(infer_shape_learned))
    .SetInferDtypeFn(PD_INFER_DTYPE(infer_type_learned));

PD_BUILD_GRAD_OP(nezha_attention_learned)
    .Inputs({"QKV", "Bias", "Tables", paddle::Optional("Visible"), paddle::Optional("Starts"), paddle::Optional("Seed"),
             "LogSumExp", paddle::Grad("Out")})
    .Outputs({paddle::Grad("QKV"), paddle::Grad("Bias"), paddle::Grad("Tables")})
    .Attrs({"heads: int", "max_relative_position: int", "dropout: float"})
    .SetKernelFn(PD_KERNEL(backward_learned));

PD_BUILD_OP(nezha_gelu)
    .Inputs({"X", "Bias"})
    .Outputs({"Out"})
    .SetKernelFn(PD_KERNEL(gelu))
    .SetInferShapeFn(PD_INFER_SHAPE(gelu_shape))
    .SetInferDtypeFn(PD_INFER_DTYPE(gelu_type));

PD_BUILD_GRAD_OP(nezha_gelu)
    .Inputs({"X", "Bias", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X"), paddle::Grad("Bias")})
    .SetKernelFn(PD_KERNEL(gelu_grad));

PD_BUILD_OP(nezha_norm)
    .Inputs({"X", "Residual", "Bias", "Weight", "Shift", paddle::Optional("Seed")})
    .Outputs({"Out", "Mean", "Inverse"})
    .Attrs({"epsilon: float", "dropout: float"})
    .SetKernelFn(PD_KERNEL(norm))
    .SetInferShapeFn(PD_INFER_SHAPE(norm_shape))
    .SetInferDtypeFn(PD_INFER_DTYPE(norm_type));

PD_BUILD_GRAD_OP(nezha_norm)
    .Inputs({"X", "Residual", "Bias", "Weight", "Shift", paddle::Optional("Seed"), "Mean", "Inverse",
             paddle::Grad("Out")})
    .Outputs({paddle::Grad("X"), paddle::Grad("Residual"), paddle::Grad("Bias"), paddle::Grad("Weight"),
              paddle::Grad("Shift")})
    .Attrs({"epsilon: float", "dropout: float"})
    .SetKernelFn(PD_KERNEL(norm_grad));

// For people who ask: the instruction set that runs, or "" where PADDLE_NEZHA_ISA names none; and all that could.
extern "C" const char* nezha_instruction_set() {
  try {
    return nezha::chosen_set().name;
  } catch (const std::invalid_argument&) {
    return "";
  }
}
extern "C" const char* nezha_instruction_sets() {
  static const std::string names = nezha::runnable_names();
  return names.c_str();
}
