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

#include "attention.h"
#include "simd.h"

#include "products.h"

#include "attention_kernels.h"

#if defined(NEZHA_TARGET) && defined(__clang__)
#pragma clang attribute pop
#endif
