// Processors with AVX2 and FMA.
#if defined(__x86_64__)
#define NEZHA_TARGET "avx2,fma"
#define NEZHA_NAME avx2
#define NEZHA_BYTES 32
#define NEZHA_COLUMNS 2  // 12 sums, 2 of the right-hand side, of 16 registers
#include "instruction_set.h"
#endif
