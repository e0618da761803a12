// The body of each set_*.cc: the same source for one instruction set.
//
// The target is set before anything is included, so that templates and inline functions have it too.

#if defined(NEZHA_TARGET)
#if defined(__clang__)
#define NEZHA_PRAGMA(text) _Pragma(#text)
#define NEZHA_PUSH(names) NEZHA_PRAGMA(clang attribute push(__attribute__((target(names))), apply_to = function))
NEZHA_PUSH(NEZHA_TARGET)
#else
#define NEZHA_PRAGMA(text) _Pragma(#text)
#define NEZHA_OPTIONS(names) NEZHA_PRAGMA(GCC target names)
NEZHA_OPTIONS(NEZHA_TARGET)
#endif
#endif

#define NEZHA_JOINED(a, b) a##b
#define NEZHA_IN(name) NEZHA_JOINED(in_, name)
#define NEZHA_SET NEZHA_IN(NEZHA_NAME)
#define NEZHA_QUOTE(name) #name
#define NEZHA_QUOTED(name) NEZHA_QUOTE(name)

#include "kernels.h"
#include "spanning.h"
// In this order: each builds on those before.
#include "simd.h"

#include "products.h"

#include "attention_kernels.h"

#include "layer_kernels.h"

namespace nezha {
namespace NEZHA_SET {
namespace {

template <class T>
constexpr Kernels<T> kernels() {
  return {fixed_size<T>, make_fixed<T>, learned_size<T>, make_learned<T>, scratch_size<T>, forward<T>, backward<T>,
          gelu_forward<T>, gelu_backward<T>, norm_scratch<T>, norm_forward<T>, norm_backward<T>};
}

}  // namespace
}  // namespace NEZHA_SET

// Initialised when the library is loaded, without running any code of this file.
extern const InstructionSet NEZHA_NAME;
constexpr InstructionSet NEZHA_NAME{NEZHA_QUOTED(NEZHA_NAME), NEZHA_SET::kernels<float>(), NEZHA_SET::kernels<double>()};

}  // namespace nezha


#if defined(NEZHA_TARGET) && defined(__clang__)
#pragma clang attribute pop
#endif
