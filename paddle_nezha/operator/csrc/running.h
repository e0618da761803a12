// Running a call, on whatever threads the caller has.
#pragma once

#include <functional>
#include <string>

#include "attention.h"

namespace nezha {

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

// Writes call.grad_qkv and, under learned positions, grad_tables [2, R, D]. The same numbers for any number of threads.
template <class T>
void run_backward(const Call<T>& call, T* grad_tables, const Parallel& parallel);

}  // namespace nezha
