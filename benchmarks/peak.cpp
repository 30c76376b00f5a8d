// Fused multiply-adds in registers and nothing else: what one core can do at most.
#include <cstdint>

#include "vectors.h"

// `operations` counts a multiplication and an addition as two.
extern "C" float multiply_adds(int64_t operations) {
  constexpr int CHAINS = 24;  // enough to hide the latency of each
  vec sum[CHAINS];
  for (int i = 0; i < CHAINS; ++i) sum[i] = spread(0.001f * i);
  const vec factor = spread(0.999f), term = spread(0.001f);
  for (int64_t left = operations / (2 * LANES * CHAINS); left > 0; --left) {
#pragma GCC unroll 24
    for (int i = 0; i < CHAINS; ++i) sum[i] = fma(factor, sum[i], term);
  }
  float total = 0;
  for (int i = 0; i < CHAINS; ++i) total += sum[i][0];  // so that no chain is left out
  return total;
}
