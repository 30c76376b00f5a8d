// Products of bf16 numbers, added up in float32, by AMX where the processor and the operating system have it, else by
// AVX512-BF16. Two neighbours k and k + 1 of the inner dimension lie side by side, since both units multiply pairs:
//
//     a tile     [k / 2][sample], as AMX wants its second factor
//     a matrix   AVX512-BF16: blocks of rows [k / 2][row], so that a product reads it from one end to the other
//                AMX: tiles of 16 rows and 16 pairs, zero beyond the edge
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "products.h"

#if !defined(__AVX512BF16__)
#error the kernel mixed needs a processor with AVX512-BF16 or AMX
#endif
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
#define HIGHWAYS_AMX 1
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

struct pair {
  uint32_t bits;  // two bf16: k in the lower half, k + 1 in the upper one
};

// The pairs of an inner dimension, filled up to whole tiles of AMX.
inline int pairs_of(int units) { return (units + 31) / 32 * 16; }

// Both numbers are rounded to the nearest, ties to even; denormals become zero.
inline void store_pairs(pair* tile, int k, int half, vec lower, vec upper) {
  alignas(64) static constexpr uint16_t interleaved[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                           8,  24, 9,  25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(upper, lower);
  _mm512_store_si512(tile + k * R + half * LANES, _mm512_permutexvar_epi16(_mm512_load_si512(interleaved), both));
}

inline __m512i load(const pair* tile, int k, int half) {
  return _mm512_load_si512(tile + k * R + half * LANES);
}

// sum + a_k b_k + a_{k+1} b_{k+1}
inline vec multiply_add(pair weight, __m512i b, vec sum) {
  return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(weight.bits), (__m512bh)b);
}

inline pair rounded(float lower, float upper) {
  const __m128i both = (__m128i)_mm_cvtne2ps_pbh(_mm_set_ss(upper), _mm_set_ss(lower));
  return {_mm_extract_epi16(both, 0) | static_cast<uint32_t>(_mm_extract_epi16(both, 4)) << 16};
}

#if HIGHWAYS_AMX

// Whether this process may use the tiles, which Linux gives on request.
inline bool amx() {
  constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
  static const bool given = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
  return given;
}

// Eight tiles of 16 rows of 64 bytes, for the calling thread.
inline void configure_tiles() {
  struct alignas(64) {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  } tiles;
  for (int i = 0; i < 8; ++i) tiles.bytes[i] = 64, tiles.rows[i] = 16;
  _tile_loadconfig(&tiles);
}

// out (outer, R) <- w in, outer filled up to whole tiles: two by two tiles at a time.
inline void multiply_tiles(const pair* w, const pair* in, float* out, int outer, int pairs) {
  constexpr int ROW = R * sizeof(float);
  const int blocks = pairs / 16;
  for (int m = 0; m < outer; m += 32) {
    const bool two = m + 16 < outer;
    _tile_zero(0);  // statements, not expressions, under GCC
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int b = 0; b < blocks; ++b) {
      const pair* upper = w + ((m / 16) * blocks + b) * 256;
      _tile_loadd(6, in + b * 16 * R, ROW);
      _tile_loadd(7, in + b * 16 * R + 16, ROW);
      _tile_loadd(4, upper, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if (!two) continue;
      _tile_loadd(5, upper + blocks * 256, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out + m * R, ROW);
    _tile_stored(1, out + m * R + 16, ROW);
    if (!two) continue;
    _tile_stored(2, out + (m + 16) * R, ROW);
    _tile_stored(3, out + (m + 16) * R + 16, ROW);
  }
}

#else

inline bool amx() { return false; }

#endif

// A matrix in pairs: w[m * row + k * column] for m < outer, k < inner.
class Packed {
 public:
  Packed(const float* w, int outer, int inner, ptrdiff_t row, ptrdiff_t column)
      : numbers(static_cast<size_t>((outer + 15) / 16 * 16) * pairs_of(inner)) {
    const int pairs = pairs_of(inner);
    const auto at = [&](int m, int k) { return k < inner ? w[m * row + k * column] : 0.0f; };
    for (int m = 0; m < outer;) {
      const int count = rows_from(m, outer);
      for (int i = 0; i < count; ++i)
        for (int k = 0; k < pairs; ++k) {
          const size_t place = amx() ? (((m + i) / 16) * (pairs / 16) + k / 16) * 256 + (m + i) % 16 * 16 + k % 16
                                     : static_cast<size_t>(m) * pairs + k * count + i;
          numbers[place] = rounded(at(m + i, 2 * k), at(m + i, 2 * k + 1));
        }
      m += count;
    }
  }

  // The rows of the block that begins at m.
  static int rows_from(int m, int outer) { return m + ROWS <= outer ? ROWS : m + 4 <= outer ? 4 : 1; }

  const pair* data() const { return numbers.data(); }

 private:
  std::vector<pair> numbers;
};

// done(m, half, start(m, half) + (w in)[m][half]), w packed; scratch: (outer, R), filled up to whole tiles of AMX.
template <class Start, class Done>
inline void multiply_packed(const pair* w, const pair* in, int outer, int inner, [[maybe_unused]] float* scratch,
                            const Start& start, const Done& done) {
  const int pairs = pairs_of(inner);
#if HIGHWAYS_AMX
  if (amx()) {
    multiply_tiles(w, in, scratch, outer, pairs);
    for (int m = 0; m < outer; ++m)
      for (int half = 0; half < 2; ++half) done(m, half, start(m, half) + load(scratch, m, half));
    return;
  }
#endif
  int m = 0;
  for (; m + ROWS <= outer; m += ROWS) product_rows<ROWS>(m, w + m * pairs, 1, ROWS, in, pairs, start, done);
  for (; m + 4 <= outer; m += 4) product_rows<4>(m, w + m * pairs, 1, 4, in, pairs, start, done);
  for (; m < outer; ++m) product_rows<1>(m, w + m * pairs, 1, 1, in, pairs, start, done);
}

// Where nothing has moved, the deviation is exactly zero, and the prediction is exactly a0.
class Mixed : public Float32 {
 public:
  static constexpr int ARRAYS = 2;

  struct Weights {
    std::vector<Packed> forward, backward;

    Weights(const Problem& p, bool relaxing) {
      const int width = static_cast<int>(p.width);
      for (int64_t j = 0; relaxing && j < p.hidden - 1; ++j) {
        const float* w = p.w_hidden + j * width * width;
        forward.emplace_back(w, width, width, width, 1);
        backward.emplace_back(w, width, width, 1, width);
      }
    }
  };

  Mixed(const Problem& problem, const Weights& packed)
      : Float32(problem, {problem, false}), weights(packed), size(width * R), h0(zeros((p.hidden - 1) * size)),
        a0(zeros((p.hidden - 1) * size)), pairs(zeros(pairs_of(width) * R)), scratch(zeros((width + 15) / 16 * 16 * R)) {
#if HIGHWAYS_AMX
    if (amx()) configure_tiles();
#endif
  }

#if HIGHWAYS_AMX
  ~Mixed() {
    if (amx()) _tile_release();
  }
#endif

  void rest(int64_t j, const float* h) {
    std::copy_n(h, size, h0.get() + j * size);
    float* a = a0.get() + j * size;
    Float32::forward(j, h, [=](int n, int half, vec value) { store(a, n, half, value); });
  }

  template <class Done>
  void forward(int64_t j, const float* h, const Done& done) {
    const float *before = h0.get() + j * size, *a = a0.get() + j * size;
    const auto start = [=](int n, int half) { return load(a, n, half); };
    if (weights.forward.empty()) {  // in the sweep
      for (int n = 0; n < width; ++n)
        for (int half = 0; half < 2; ++half) done(n, half, start(n, half));
      return;
    }
    pack([=](int n, int half) { return load(h, n, half) - load(before, n, half); });
    multiply_packed(weights.forward[j].data(), packed(), width, width, scratch.get(), start, done);
  }

  template <class Done>
  void backward(int64_t j, const float* g, const Done& done) {
    pack([=](int n, int half) { return load(g, n, half); });
    const auto start = [](int, int) { return vec{}; };
    multiply_packed(weights.backward[j].data(), packed(), width, width, scratch.get(), start, done);
  }

 private:
  const Weights& weights;
  const int size;
  Array h0, a0;          // of every layer below the last one
  Array pairs, scratch;  // of the product at hand

  pair* packed() { return reinterpret_cast<pair*>(pairs.get()); }

  template <class Value>
  void pack(const Value& value) {
    for (int k = 0; k < width / 2; ++k)
      for (int half = 0; half < 2; ++half) store_pairs(packed(), k, half, value(2 * k, half), value(2 * k + 1, half));
    if (width % 2)
      for (int half = 0; half < 2; ++half) store_pairs(packed(), width / 2, half, value(width - 1, half), vec{});
  }
};

}  // namespace
