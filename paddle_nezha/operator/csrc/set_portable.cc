// Whatever the compiler takes for granted: SSE2 on x86-64, NEON on 64-bit ARM.
#define NEZHA_NAME portable
#define NEZHA_BYTES 16
#if defined(__aarch64__)
#define NEZHA_COLUMNS 4  // of 32 registers
#else
#define NEZHA_COLUMNS 2  // of 16
#endif
#include "instruction_set.h"
