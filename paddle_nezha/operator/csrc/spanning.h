// Which columns of the sinusoid table the others follow from.
#pragma once

#include <cstdint>

namespace nezha {

// The columns cos(t w_k), t = 1 .. reach, k = 0 .. angles - 1, are nearly dependent: slow angles hardly move within the
// reach. The same holds for sin(t w_k). Finds how many angles, a multiple of `step`, the others follow from to within the
// rounding of the table's own entries: the fastest, and the slowest in the last of their places. (Learned from the
// fastest alone, the slow ones would be extrapolated, by large weights of both signs.)
//
// Gives their number `kept`, and the weights [kept, angles - kept] by which the kept columns make the others, which are in
// the order of their angles, but for the one whose place the slowest has taken: that one is the last. `angles`, and
// nothing written, where all are needed.
template <class T>
int64_t kept_angles(int reach, int64_t angles, int64_t step, T* cos_weights, T* sin_weights);

}  // namespace nezha
