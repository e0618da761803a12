// Running a call, on whatever threads the caller has.
#pragma once

#include <functional>
#include <string>

#include "attention.h"
#include "layer.h"

namespace nezha {

struct InstructionSet;

// `run(n, work)` calls work(0) .. work(n - 1), each once, on up to `threads` threads, and returns when all are done.
struct Parallel {
  int threads;
  std::function<void(int64_t, const std::function<void(int64_t)>&)> run;
};

// The best instruction set this processor runs, or the one that PADDLE_NEZHA_ISA names. Throws std::invalid_argument for
// a name that is not among them.
const InstructionSet& chosen_set();

// All that it runs, the best first, separated by ", ".
std::string runnable_names();

// Writes call.out and call.log_sum_exp.
template <class T>
void run_forward(const Call<T>& call, const Parallel& parallel);

// Writes call.grad_qkv, grad_bias [3 N] and, under learned positions, grad_tables [2, R, D]. Here and below the numbers
// are the same for any number of threads.
template <class T>
void run_backward(const Call<T>& call, T* grad_bias, T* grad_tables, const Parallel& parallel);

// Writes call.out; then call.grad_x and grad_bias [width].
template <class T>
void run_gelu_forward(const GeluCall<T>& call, const Parallel& parallel);
template <class T>
void run_gelu_backward(const GeluCall<T>& call, T* grad_bias, const Parallel& parallel);

// Writes call.out, call.mean and call.inverse; then call.grad_x, call.grad_residual and grad_parameters [3, width]: of the
// bias, and of LayerNorm's weight and shift.
template <class T>
void run_norm_forward(const NormCall<T>& call, const Parallel& parallel);
template <class T>
void run_norm_backward(const NormCall<T>& call, T* grad_parameters, const Parallel& parallel);

}  // namespace nezha
