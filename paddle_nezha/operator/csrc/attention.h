// Attention with relative positions on processors: what a call is made of. Knows no Paddle and no thread library.
//
// With q, k, v of one head [L, D], the table A [R, D], R = 2m + 1, and r = clip(t - f, -m, m) + m for query f and key t:
//
//     scores   s_ft = q_f . (k_t + A[r]) / sqrt(D)        hidden keys are left out
//     context  c_f  = sum_t softmax(s)_ft (v_t + A[r])
//
// Nothing of size L x L is kept: a block of queries at a time, whose scores stay in the cache. The backward computes the
// probabilities again from the log-sum-exp of each row.
//
// Even/odd folding. For the sinusoid table and the angles w_k = 10000^(-2k/D), rotating q by m w_k makes column m + t of
// q A^T equal to E(t) + O(t) and column m - t equal to E(t) - O(t), t = 0 .. m, with E a product over the D/2 cosines
// cos(t w_k) and O over the sines: half the work of the plain product, and exact. The value side is the transpose.
//
// Dependent columns. Within the reach slow angles hardly move: of the 32 columns cos(t w_k), t = 1 .. 64, 16 make all
// others, to within the rounding of a double. So a row's coefficients of the others are added, by fixed weights, to those of
// the kept ones before the products, and on the value side what the others get follows from what the kept ones get: half
// of the work again, but for the weights (spanning.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace nezha {

enum class Encoding : int { absolute = 0, functional_relative = 1, parametric_relative = 2 };

// One call. `T` is float or double; every array is contiguous. N = heads * head_size.
template <class T>
struct Call {
  const T* qkv;            // [tokens, 3 N]: queries, keys, values
  const T* bias;           // [3 N], added to them
  const uint8_t* visible;  // [tokens]: 0 hides a token as a key (it is still computed as a query)
  const int32_t* starts;   // [sequences + 1]: sequence s is the tokens starts[s] .. starts[s + 1] - 1
  const T* tables;         // [2, R, D]: of keys and of values, under learned positions; otherwise not read
  int64_t tokens, sequences;
  int heads, head_size, reach;  // head_size D is even; reach is m, but less for the kernels where no pair is so far apart
  Encoding encoding;
  double dropout;  // probability with which a probability is dropped; the mask follows from the seed alone
  uint64_t seed;
  // forward
  T* out;          // [tokens, N]
  T* log_sum_exp;  // [heads, tokens]: read by the backward too; -inf for a query that sees no key
  // backward
  const T* grad_out;  // [tokens, N]
  T* grad_qkv;        // [tokens, 3 N]
};

// The queries first .. last - 1 of one head of one sequence, counted within the sequence.
struct Item {
  int64_t sequence;
  int head;
  int64_t first, last;
};

}  // namespace nezha
