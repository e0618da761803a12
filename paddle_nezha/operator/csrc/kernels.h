// The kernels of one instruction set, as functions that can be called whichever it is.
#pragma once

#include <cstddef>

#include "attention.h"
#include "layer.h"

namespace nezha {

template <class T>
struct Kernels {
  // The sinusoid tables of m, for calls whose reach is `reach`: m, or less where no pair is so far apart. `fixed` of the
  // calls below.
  size_t (*fixed_size)(int reach, int head_size);
  void (*make_fixed)(int m, int reach, int head_size, T* fixed);
  // Learned tables in the order the products read them, made once for a call and handed over as `fixed`.
  size_t (*learned_size)(const Call<T>&);
  void (*make_learned)(const Call<T>&, T* learned);
  // Elements of scratch that an item of a sequence of this length needs. Scratch is aligned to 64 bytes.
  size_t (*scratch_size)(const Call<T>&, int64_t length, bool backward);
  void (*forward)(const Call<T>&, const Item&, const T* fixed, T* scratch);
  // The item holds all queries. `grad_bias` [3, D] is written: the item's part of the gradient of the head's biases.
  // `grad_tables` [2, R, D] is added to under learned positions, null otherwise.
  void (*backward)(const Call<T>&, const Item&, const T* fixed, T* scratch, T* grad_bias, T* grad_tables);

  // Rows first .. last - 1. `sums` is added to: [width] of GELU's bias; [3, width] of the bias, and of LayerNorm's weight
  // and shift.
  void (*gelu_forward)(const GeluCall<T>&, int64_t first, int64_t last);
  void (*gelu_backward)(const GeluCall<T>&, int64_t first, int64_t last, T* sums);
  size_t (*norm_scratch)(int64_t width);
  void (*norm_forward)(const NormCall<T>&, int64_t first, int64_t last, T* scratch);
  void (*norm_backward)(const NormCall<T>&, int64_t first, int64_t last, T* scratch, T* sums);
};

struct InstructionSet {
  const char* name;
  Kernels<float> single;
  Kernels<double> twofold;
};

// Compiled from the same source, one file each.
#if defined(__x86_64__)
extern const InstructionSet avx512, avx2;
#endif
extern const InstructionSet portable;

}  // namespace nezha
