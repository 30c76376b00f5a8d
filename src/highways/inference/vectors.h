// A tile of samples in vectors: what the processor does to R samples side by side.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 12;
#elif defined(__AVX__)
constexpr int LANES = 8, ROWS = 6;
#else
constexpr int LANES = 4, ROWS = 6;
#endif
constexpr int R = 2 * LANES;  // samples in a tile

typedef float vec __attribute__((vector_size(LANES * sizeof(float))));

inline vec spread(float value) { return value - vec{}; }

// a b + c, rounded once where the processor can.
inline vec fma(vec a, vec b, vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_FEATURE_FMA) && defined(__ARM_NEON)
  return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

// The halves of a row of a tile, (units, R).
inline vec load(const float* tile, int n, int half) {
  return *reinterpret_cast<const vec*>(tile + n * R + half * LANES);
}

inline void store(float* tile, int n, int half, vec value) {
  *reinterpret_cast<vec*>(tile + n * R + half * LANES) = value;
}

inline vec square_root(vec a) {
  for (int i = 0; i < LANES; ++i) a[i] = std::sqrt(a[i]);
  return a;
}

struct Free {
  void operator()(float* p) const { std::free(p); }
};
using Array = std::unique_ptr<float[], Free>;

inline Array zeros(size_t size) {
  const size_t bytes = (size * sizeof(float) + 63) / 64 * 64;
  float* memory = static_cast<float*>(std::aligned_alloc(64, bytes));
  if (!memory) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return Array(memory);
}

}  // namespace
