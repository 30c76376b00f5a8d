// Products of matrices and tiles. What comes before and after a product happens in its registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "problem.h"
#include "vectors.h"

namespace {

inline vec multiply_add(float weight, vec b, vec sum) { return fma(spread(weight), b, sum); }

// done(m + i, half, start(m + i, half) + sum_k w[i * row + k * column] in[k][half]) for COUNT rows.
template <int COUNT, class Number, class Start, class Done>
inline __attribute__((always_inline)) void product_rows(int m, const Number* __restrict w, ptrdiff_t row,
                                                        ptrdiff_t column, const Number* __restrict in, int inner,
                                                        const Start& start, const Done& done) {
  vec sum[COUNT][2];  // in registers, as long as every loop over it is unrolled
#pragma GCC unroll 16
  for (int i = 0; i < COUNT; ++i)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) sum[i][half] = start(m + i, half);
  for (int k = 0; k < inner; ++k) {
    const auto left = load(in, k, 0), right = load(in, k, 1);
    const Number* weight = w + k * column;
#pragma GCC unroll 16
    for (int i = 0; i < COUNT; ++i) {
      sum[i][0] = multiply_add(weight[i * row], left, sum[i][0]);
      sum[i][1] = multiply_add(weight[i * row], right, sum[i][1]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < COUNT; ++i)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) done(m + i, half, sum[i][half]);
}

template <int BLOCK, class Start, class Done>
inline __attribute__((always_inline)) void product(const float* w, ptrdiff_t row, ptrdiff_t column, const float* in,
                                                   int outer, int inner, const Start& start, const Done& done) {
  int m = 0;
  for (; m + BLOCK <= outer; m += BLOCK) product_rows<BLOCK>(m, w + m * row, row, column, in, inner, start, done);
  for (; m + 4 <= outer; m += 4) product_rows<4>(m, w + m * row, row, column, in, inner, start, done);
  for (; m < outer; ++m) product_rows<1>(m, w + m * row, row, column, in, inner, start, done);
}

// w in + bias, w (outer, inner). The usual width is compiled with known strides.
template <class Done>
inline void multiply(const float* w, const float* in, int outer, int inner, const float* bias, const Done& done) {
  const auto start = [=](int m, int) { return spread(bias ? bias[m] : 0.0f); };
  if (inner == 128)
    product<ROWS>(w, 128, 1, in, outer, 128, start, done);
  else
    product<ROWS>(w, inner, 1, in, outer, inner, start, done);
}

// w^T in, w (inner, outer).
template <class Done>
inline void multiply_transposed(const float* w, const float* in, int outer, int inner, const Done& done) {
  const auto start = [](int, int) { return vec{}; };
  if (outer == 128)
    product<ROWS>(w, 1, 128, in, 128, inner, start, done);
  else
    product<ROWS>(w, 1, outer, in, outer, inner, start, done);
}

// The products of the hidden matrices in float32. Matrix j leads from layer j to layer j + 1, both counted from 0.
class Float32 {
 public:
  static constexpr int ARRAYS = 0;  // of a layer's size that it keeps of every layer

  struct Weights {
    Weights(const Problem&, bool) {}
  };

  Float32(const Problem& problem, const Weights&) : p(problem), width(static_cast<int>(p.width)) {}

  // The states are where they start: h of layer j is at hand.
  void rest(int64_t, const float*) {}

  // done(n, half, W_j h + b_j)
  template <class Done>
  void forward(int64_t j, const float* h, const Done& done) {
    multiply(matrix(j), h, width, width, bias(j), done);
  }

  // done(k, half, W_j^T g)
  template <class Done>
  void backward(int64_t j, const float* g, const Done& done) {
    multiply_transposed(matrix(j), g, width, width, done);
  }

 protected:
  const Problem& p;
  const int width;

  const float* matrix(int64_t j) const { return p.w_hidden + j * width * width; }
  const float* bias(int64_t j) const { return p.b_hidden ? p.b_hidden + j * width : nullptr; }
};

}  // namespace
