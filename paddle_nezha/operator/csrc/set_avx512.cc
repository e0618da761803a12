// Processors with AVX-512 (F, BW, DQ, VL).
#if defined(__x86_64__)
#define NEZHA_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"
#define NEZHA_NAME avx512
#define NEZHA_BYTES 64
#define NEZHA_COLUMNS 4  // 24 sums, 4 of the right-hand side, of 32 registers
#include "instruction_set.h"
#endif
