// What a layer does between its products: the calls of layer_kernels.h. Every array is contiguous, rows [rows, width].
#pragma once

#include <cstdint>

namespace nezha {

// out = GELU(x + bias), the exact form.
template <class T>
struct GeluCall {
  const T *x, *bias;  // [rows, width], [width]
  int64_t rows, width;
  T* out;             // forward
  const T* grad_out;  // backward
  T* grad_x;
};

// out = LayerNorm(residual + dropout(x + bias)).
template <class T>
struct NormCall {
  const T *x, *residual;            // [rows, width]
  const T *bias, *weight, *shift;   // [width]; weight and shift are LayerNorm's own
  int64_t rows, width;
  double epsilon, dropout;
  uint64_t seed;
  T *mean, *inverse;                // [rows]: written by the forward, read by the backward
  T* out;                           // forward
  const T* grad_out;                // backward
  T *grad_x, *grad_residual;
};

}  // namespace nezha
