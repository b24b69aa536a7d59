// Which vector targets Highway compiles; included before any Highway header by every SIMD file;
// three are enough: the baseline, AVX2 and AVX-512.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSE4 | HWY_AVX3_DL)
