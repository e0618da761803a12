// The operators as Paddle sees them. Everything is checked here: the kernels trust what they are given.

#include <paddle/extension.h>

#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "running.h"

namespace {

using paddle::DataType;
using paddle::Tensor;
using OptionalTensor = paddle::optional<Tensor>;

// Paddle's own threads, as many as it uses itself: this library is linked with Paddle's OpenMP.
nezha::Parallel paddle_threads() {
#ifdef _OPENMP
  const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
#else
  const int threads = 1;
#endif
  return {threads, [threads](int64_t count, const std::function<void(int64_t)>& work) {
            std::exception_ptr failure;
            std::mutex mutex;
            (void)threads;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1 && count > 1)
#endif
            for (int64_t i = 0; i < count; i++) {
              try {  // an exception may not leave a thread of the team
                work(i);
              } catch (...) {
                const std::lock_guard<std::mutex> lock(mutex);
                if (!failure) failure = std::current_exception();
              }
            }
            if (failure) std::rethrow_exception(failure);
          }};
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); i++) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

void require(bool fits, const std::string& expected, const std::string& got) {
  if (!fits) PD_THROW("nezha_attention expects ", expected, ", but got ", got, ".");
}

int64_t product_of(const std::vector<int64_t>& shape, size_t count) {
  int64_t total = 1;
  for (size_t i = 0; i < count; i++) total *= shape[i];
  return total;
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

  Arguments(const Tensor& qkv, const Tensor* tables, const OptionalTensor& visible, const OptionalTensor& starts,
            const OptionalTensor& seed, const Settings& settings) {
    const int heads = settings.heads, reach = settings.max_relative_position;
    const float dropout = settings.dropout;
    const std::vector<int64_t> shape = qkv.shape();
    require(qkv.is_cpu(), "tensors on a CPU", "one elsewhere");
    require(shape.size() == 2 || shape.size() == 3, "qkv [tokens, 3N] or [batch, length, 3N]", shape_text(shape));
    const int64_t width = shape.back();
    require(heads > 0 && width > 0 && width % (3 * static_cast<int64_t>(heads)) == 0,
            "qkv as wide as 3 * heads * head size", std::to_string(width) + " columns for " + std::to_string(heads) + " heads");
    const int64_t head_size = width / 3 / heads;
    require(head_size % 2 == 0 && head_size <= 256, "an even head size of at most 256", std::to_string(head_size));
    require(reach >= (tables ? 1 : 0) && reach <= (1 << 20), "max_relative_position of 1 to 2^20 (or 0 for none)",
            std::to_string(reach));
    require(dropout >= 0.0f && dropout <= 1.0f, "a dropout of 0 .. 1", std::to_string(dropout));
    call.qkv = qkv.data<T>();
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
      require(starts->dtype() == DataType::INT32 && starts->shape().size() == 1 && starts->numel() >= 1,
              "starts int32 [sequences + 1]", shape_text(starts->shape()));
      rows.assign(starts->data<int32_t>(), starts->data<int32_t>() + starts->numel());
      bool ordered = rows.front() == 0 && rows.back() == call.tokens;
      for (size_t i = 1; i < rows.size(); i++) ordered = ordered && rows[i - 1] <= rows[i];
      require(ordered, "starts that rise from 0 to the number of tokens, " + std::to_string(call.tokens), "others");
    }
    call.starts = rows.data();
    call.sequences = static_cast<int64_t>(rows.size()) - 1;

    if (visible) {
      require(visible->dtype() == DataType::BOOL && visible->numel() == call.tokens, "visible bool, one for each token",
              shape_text(visible->shape()));
      call.visible = reinterpret_cast<const uint8_t*>(visible->data<bool>());
    } else {
      all_visible.assign(static_cast<size_t>(call.tokens), 1);
      call.visible = all_visible.data();
    }
    if (tables) {
      const std::vector<int64_t> wanted{2, 2 * static_cast<int64_t>(reach) + 1, head_size};
      require(tables->dtype() == qkv.dtype() && tables->shape() == wanted,
              "tables " + shape_text(wanted) + " of the dtype of qkv", shape_text(tables->shape()));
      call.tables = tables->data<T>();
    }
    if (dropout > 0) {
      require(seed && seed->dtype() == DataType::INT64 && seed->numel() == 2, "a seed int64 [2] beside a dropout",
              seed ? shape_text(seed->shape()) : "none");
      const int64_t* halves = seed->data<int64_t>();
      call.seed = (static_cast<uint64_t>(halves[0]) << 32) ^ static_cast<uint64_t>(halves[1]);
    }
  }
};

std::vector<int64_t> out_shape(std::vector<int64_t> qkv) {
  qkv.back() = qkv.back() < 0 ? qkv.back() : qkv.back() / 3;
  return qkv;
}
std::vector<int64_t> log_sum_exp_shape(const std::vector<int64_t>& qkv, int heads) {
  std::vector<int64_t> shape{heads};
  shape.insert(shape.end(), qkv.begin(), qkv.end() - 1);
  return shape;
}

// Paddle ends the process at exceptions that are not its own.
template <class Work>
std::vector<Tensor> guarded(const Work& work) {
  std::string message;
  try {
    return work();
  } catch (const std::invalid_argument& error) {
    message = error.what();
  } catch (const std::bad_alloc&) {
    message = "nezha_attention could not get the memory it works in.";
  }
  PD_THROW(message);
}

template <class T>
std::vector<Tensor> forward_as(const Tensor& qkv, const Tensor* tables, const OptionalTensor& visible,
                               const OptionalTensor& starts, const OptionalTensor& seed, const Settings& settings) {
  Arguments<T> given(qkv, tables, visible, starts, seed, settings);
  Tensor out = paddle::empty(out_shape(qkv.shape()), qkv.dtype(), qkv.place());
  Tensor log_sum_exp = paddle::empty(log_sum_exp_shape(qkv.shape(), settings.heads), qkv.dtype(), qkv.place());
  given.call.out = out.data<T>();
  given.call.log_sum_exp = log_sum_exp.data<T>();
  nezha::run_forward(given.call, paddle_threads());
  return {out, log_sum_exp};
}

std::vector<Tensor> forward_of(const Tensor& qkv, const Tensor* tables, const OptionalTensor& visible,
                               const OptionalTensor& starts, const OptionalTensor& seed, const Settings& settings) {
  require(qkv.dtype() == DataType::FLOAT32 || qkv.dtype() == DataType::FLOAT64, "qkv in float32 or float64", "another dtype");
  return guarded([&] {
    return qkv.dtype() == DataType::FLOAT64 ? forward_as<double>(qkv, tables, visible, starts, seed, settings)
                                            : forward_as<float>(qkv, tables, visible, starts, seed, settings);
  });
}

template <class T>
std::vector<Tensor> backward_as(const Tensor& qkv, const Tensor* tables, const OptionalTensor& visible,
                                const OptionalTensor& starts, const OptionalTensor& seed,
                                const Tensor& log_sum_exp, const Tensor& grad_out, const Settings& settings) {
  Arguments<T> given(qkv, tables, visible, starts, seed, settings);
  std::vector<Tensor> grads{paddle::empty(qkv.shape(), qkv.dtype(), qkv.place())};
  if (tables) grads.push_back(paddle::empty(tables->shape(), qkv.dtype(), qkv.place()));
  given.call.log_sum_exp = const_cast<T*>(log_sum_exp.data<T>());
  given.call.grad_out = grad_out.data<T>();
  given.call.grad_qkv = grads[0].data<T>();
  nezha::run_backward<T>(given.call, tables ? grads[1].data<T>() : nullptr, paddle_threads());
  return grads;
}

std::vector<Tensor> backward_of(const Tensor& qkv, const Tensor* tables, const OptionalTensor& visible,
                                const OptionalTensor& starts, const OptionalTensor& seed,
                                const Tensor& log_sum_exp, const Tensor& grad_out, const Settings& settings) {
  return guarded([&] {
    return qkv.dtype() == DataType::FLOAT64
               ? backward_as<double>(qkv, tables, visible, starts, seed, log_sum_exp, grad_out, settings)
               : backward_as<float>(qkv, tables, visible, starts, seed, log_sum_exp, grad_out, settings);
  });
}

using OptionalShape = paddle::optional<std::vector<int64_t>>;
using OptionalType = paddle::optional<DataType>;
using Shape = std::vector<int64_t>;

// ---- nezha_attention: the sinusoid table, or (max_relative_position = 0) no relative part

Settings fixed_settings(int heads, int max_relative_position, float dropout) {
  const auto encoding =
      max_relative_position == 0 ? nezha::Encoding::absolute : nezha::Encoding::functional_relative;
  return {heads, max_relative_position, dropout, encoding};
}
std::vector<Tensor> forward(const Tensor& qkv, const OptionalTensor& visible, const OptionalTensor& starts,
                            const OptionalTensor& seed, int heads, int max_relative_position, float dropout) {
  return forward_of(qkv, nullptr, visible, starts, seed, fixed_settings(heads, max_relative_position, dropout));
}
std::vector<Tensor> backward(const Tensor& qkv, const OptionalTensor& visible, const OptionalTensor& starts,
                             const OptionalTensor& seed, const Tensor& log_sum_exp, const Tensor& grad_out, int heads, int max_relative_position, float dropout) {
  return backward_of(qkv, nullptr, visible, starts, seed, log_sum_exp, grad_out,
                     fixed_settings(heads, max_relative_position, dropout));
}
std::vector<Shape> infer_shape(const Shape& qkv, const OptionalShape&, const OptionalShape&, const OptionalShape&,
                               int heads, int, float) {
  return {out_shape(qkv), log_sum_exp_shape(qkv, heads)};
}
std::vector<DataType> infer_type(const DataType& qkv, const OptionalType&, const OptionalType&, const OptionalType&) {
  return {qkv, qkv};
}

// ---- nezha_attention_learned: learned tables. An operator of its own, since Paddle knows no gradient of an input that
// may be left out.

Settings learned_settings(int heads, int max_relative_position, float dropout) {
  return {heads, max_relative_position, dropout, nezha::Encoding::parametric_relative};
}
std::vector<Tensor> forward_learned(const Tensor& qkv, const Tensor& tables, const OptionalTensor& visible,
                                    const OptionalTensor& starts, const OptionalTensor& seed, int heads,
                                    int max_relative_position, float dropout) {
  return forward_of(qkv, &tables, visible, starts, seed, learned_settings(heads, max_relative_position, dropout));
}
std::vector<Tensor> backward_learned(const Tensor& qkv, const Tensor& tables, const OptionalTensor& visible,
                                     const OptionalTensor& starts, const OptionalTensor& seed,
                                     const Tensor& log_sum_exp, const Tensor& grad_out, int heads,
                                     int max_relative_position, float dropout) {
  return backward_of(qkv, &tables, visible, starts, seed, log_sum_exp, grad_out,
                     learned_settings(heads, max_relative_position, dropout));
}
std::vector<Shape> infer_shape_learned(const Shape& qkv, const Shape&, const OptionalShape&, const OptionalShape&,
                                       const OptionalShape&, int heads, int, float) {
  return {out_shape(qkv), log_sum_exp_shape(qkv, heads)};
}
std::vector<DataType> infer_type_learned(const DataType& qkv, const DataType&, const OptionalType&, const OptionalType&,
                                         const OptionalType&) {
  return {qkv, qkv};
}

}  // namespace

PD_BUILD_OP(nezha_attention)
    .Inputs({"QKV", paddle::Optional("Visible"), paddle::Optional("Starts"), paddle::Optional("Seed")})
    .Outputs({"Out", "LogSumExp"})
    .Attrs({"heads: int", "max_relative_position: int", "dropout: float"})
    .SetKernelFn(PD_KERNEL(forward))
    .SetInferShapeFn(PD_INFER_SHAPE(infer_shape))
    .SetInferDtypeFn(PD_INFER_DTYPE(infer_type));

PD_BUILD_GRAD_OP(nezha_attention)
    .Inputs({"QKV", paddle::Optional("Visible"), paddle::Optional("Starts"), paddle::Optional("Seed"),
             "LogSumExp", paddle::Grad("Out")})
    .Outputs({paddle::Grad("QKV")})
    .Attrs({"heads: int", "max_relative_position: int", "dropout: float"})
    .SetKernelFn(PD_KERNEL(backward));

PD_BUILD_OP(nezha_attention_learned)
    .Inputs({"QKV", "Tables", paddle::Optional("Visible"), paddle::Optional("Starts"), paddle::Optional("Seed")})
    .Outputs({"Out", "LogSumExp"})
    .Attrs({"heads: int", "max_relative_position: int", "dropout: float"})
    .SetKernelFn(PD_KERNEL(forward_learned))
    .SetInferShapeFn(PD_INFER_SHAPE(infer_shape_learned))
    .SetInferDtypeFn(PD_INFER_DTYPE(infer_type_learned));

PD_BUILD_GRAD_OP(nezha_attention_learned)
    .Inputs({"QKV", "Tables", paddle::Optional("Visible"), paddle::Optional("Starts"), paddle::Optional("Seed"),
             "LogSumExp", paddle::Grad("Out")})
    .Outputs({paddle::Grad("QKV"), paddle::Grad("Tables")})
    .Attrs({"heads: int", "max_relative_position: int", "dropout: float"})
    .SetKernelFn(PD_KERNEL(backward_learned));

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
