// The E-step of predictive coding on a CPU, in float32: the equations of energy.py, one tile of samples at a time.
//
// Samples do not interact while the weights stand still, so the batch is cut into tiles of R samples, and a tile
// runs through all its steps before the next one begins: what it needs stays in cache. Within a tile an array of
// a layer is stored [unit][sample], so that every loop runs over R samples side by side, without sums across a
// vector or remainders, and both products of a layer read the one copy of its weights:
//
//     a = W h      a[n][:] = sum_k W[n][k] h[k][:]
//     u = W^T g    u[k][:] = sum_n W[n][k] g[n][:]
//
// A step walks down the layers once and moves each layer in place as soon as the error below it is known. It is still
// a Jacobi update: by then the layer above has taken what it needs of the old state, and the layer below has not moved.
// The next step may therefore follow two layers behind (the output error, which the highways carry to all layers, is
// known as soon as the top layer has moved), and so on: a few walkers, one per step, go down the network together, and
// a layer is fetched from memory once for all of them. The arithmetic is the same, to the bit.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <unistd.h>

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

enum Activation { POST, PRE, BOTH, PRE_NORM };
enum Phi { RELU, TANH };

constexpr double BETA_1 = 0.9, BETA_2 = 0.999;

}  // namespace

// What native.py describes; every array is contiguous.
struct Problem {
  int64_t hidden, width, classes, batch;  // L-1 hidden layers of N units, C classes, B samples
  int64_t activation, phi;                // Activation, Phi
  int64_t normalised;                     // how many states, from z_1 upwards, are normalised
  int64_t adam, steps;                    // Adam or Euler; T
  int64_t first, every;                   // endpoints S: layers first, first + every, ... (0: no highways)
  int64_t threads;
  int64_t walkers;                        // steps that go down together; 0: as many as the cache has room for
  float rms_eps, step_size, eps;
  float scale;                            // of the gradient: 1 / B where the energy is the batch mean
  const float *w_hidden, *w_out;          // (L-2, N, N), (C, N)
  const float *gain;                      // (normalised, N)
  const float *b_hidden, *b_out;          // (L-2, N), (C), or null
  const float *feedback;                  // (|S|, C, N): alpha V_i, transposed
  const float *mu_1, *y;                  // (B, N), (B, C)
  float *states;                          // (L-1, B, N): z_1..z_{L-1}, read and written
  float *errors, *output_error;           // (L-1, B, N), (B, C): written after the last step
};

namespace {

// ---- Products

// out[m][:] = bias[m] + sum_k w[m * row + k * column] in[k][:] for COUNT rows m.
template <int COUNT>
inline void product_rows(float* __restrict out, const float* __restrict w, ptrdiff_t row, ptrdiff_t column,
                         const float* __restrict in, int inner, const float* __restrict bias) {
  vec sum[COUNT][2];
  for (int m = 0; m < COUNT; ++m) sum[m][0] = sum[m][1] = vec{} + (bias ? bias[m] : 0.0f);
  for (int k = 0; k < inner; ++k) {
    const vec left = *reinterpret_cast<const vec*>(in + k * R);
    const vec right = *reinterpret_cast<const vec*>(in + k * R + LANES);
    const float* weight = w + k * column;
#pragma GCC unroll 16
    for (int m = 0; m < COUNT; ++m) {
      sum[m][0] += weight[m * row] * left;
      sum[m][1] += weight[m * row] * right;
    }
  }
  for (int m = 0; m < COUNT; ++m) {
    *reinterpret_cast<vec*>(out + m * R) = sum[m][0];
    *reinterpret_cast<vec*>(out + m * R + LANES) = sum[m][1];
  }
}

inline __attribute__((always_inline)) void product(float* out, const float* w, ptrdiff_t row, ptrdiff_t column,
                                                   const float* in, int outer, int inner, const float* bias) {
  int m = 0;
  for (; m + ROWS <= outer; m += ROWS)
    product_rows<ROWS>(out + m * R, w + m * row, row, column, in, inner, bias ? bias + m : nullptr);
  for (; m + 4 <= outer; m += 4)
    product_rows<4>(out + m * R, w + m * row, row, column, in, inner, bias ? bias + m : nullptr);
  for (; m < outer; ++m)
    product_rows<1>(out + m * R, w + m * row, row, column, in, inner, bias ? bias + m : nullptr);
}

// out (outer, R) = w in + bias, w (outer, inner). The usual width is compiled with known strides.
void multiply(float* out, const float* w, const float* in, int outer, int inner, const float* bias) {
  if (inner == 128)
    product(out, w, 128, 1, in, outer, 128, bias);
  else
    product(out, w, inner, 1, in, outer, inner, bias);
}

// out (outer, R) = w^T in, w (inner, outer).
void multiply_transposed(float* out, const float* w, const float* in, int outer, int inner) {
  if (outer == 128)
    product(out, w, 1, 128, in, 128, inner, nullptr);
  else
    product(out, w, 1, outer, in, outer, inner, nullptr);
}

// ---- Element-wise work on one layer of a tile, (N, R)

template <int PHI>
inline float phi(float a) {
  return PHI == RELU ? (a > 0.0f ? a : 0.0f) : std::tanh(a);
}

// phi'(a) from the activity phi(a).
template <int PHI>
inline float slope(float activity) {
  return PHI == RELU ? (activity > 0.0f ? 1.0f : 0.0f) : 1.0f - activity * activity;
}

// h(z), Eq. rmsnorm in the chosen reading, and 1 / rms of every sample; gain is null where z is not normalised.
template <int ACTIVATION, int PHI>
void encode(float* __restrict h, float* __restrict inverse, const float* __restrict z, const float* __restrict gain,
            int width, float rms_eps) {
  constexpr bool before = ACTIVATION == PRE_NORM, after = ACTIVATION == PRE || ACTIVATION == BOTH;
  if (gain) {
    float sum[R] = {};
    for (int n = 0; n < width; ++n)
      for (int r = 0; r < R; ++r) {
        const float q = before ? phi<PHI>(z[n * R + r]) : z[n * R + r];
        sum[r] += q * q;
      }
    for (int r = 0; r < R; ++r) inverse[r] = 1.0f / std::sqrt(sum[r] / width + rms_eps);
  }
  for (int n = 0; n < width; ++n)
    for (int r = 0; r < R; ++r) {
      float value = before ? phi<PHI>(z[n * R + r]) : z[n * R + r];
      if (gain) value = value * inverse[r] * gain[n];
      h[n * R + r] = after ? phi<PHI>(value) : value;
    }
}

// u <- (dh/dz)^T u.
template <int ACTIVATION, int PHI>
void encode_transposed(float* __restrict u, const float* __restrict h, const float* __restrict inverse,
                       const float* __restrict z, const float* __restrict gain, int width) {
  constexpr bool before = ACTIVATION == PRE_NORM, after = ACTIVATION == PRE || ACTIVATION == BOTH;
  float radial[R] = {};
  if (gain || after)
    for (int n = 0; n < width; ++n)
      for (int r = 0; r < R; ++r) {
        float value = u[n * R + r];
        if (after) value *= slope<PHI>(h[n * R + r]);
        if (gain) {
          value *= gain[n];
          radial[r] += value * (before ? phi<PHI>(z[n * R + r]) : z[n * R + r]);
        }
        u[n * R + r] = value;
      }
  if (gain)
    for (int r = 0; r < R; ++r) radial[r] *= inverse[r] * inverse[r] / width;
  if (gain || before)
    for (int n = 0; n < width; ++n)
      for (int r = 0; r < R; ++r) {
        const float q = before ? phi<PHI>(z[n * R + r]) : z[n * R + r];
        float value = u[n * R + r];
        if (gain) value = (value - q * radial[r]) * inverse[r];
        u[n * R + r] = before ? value * slope<PHI>(q) : value;
      }
}

// mu <- phi(a) where the reading has phi behind the matrix.
template <int ACTIVATION, int PHI>
void activate(float* __restrict mu, int size) {
  if (ACTIVATION == POST || ACTIVATION == BOTH)
    for (int i = 0; i < size; ++i) mu[i] = phi<PHI>(mu[i]);
}

// error = z - mu; mu <- error * phi'(a), what the matrix sees of it.
template <int ACTIVATION, int PHI>
void compare(float* __restrict error, float* __restrict mu, const float* __restrict z, int size) {
  constexpr bool behind = ACTIVATION == POST || ACTIVATION == BOTH;
  for (int i = 0; i < size; ++i) {
    const float difference = z[i] - mu[i];
    error[i] = difference;
    mu[i] = behind ? difference * slope<PHI>(mu[i]) : difference;
  }
}

// Logits (C, R) become the output error y - softmax.
void output_error(float* __restrict logits, const float* __restrict y, int classes) {
  float top[R], sum[R] = {};
  for (int r = 0; r < R; ++r) top[r] = logits[r];
  for (int c = 1; c < classes; ++c)
    for (int r = 0; r < R; ++r) top[r] = std::max(top[r], logits[c * R + r]);
  for (int c = 0; c < classes; ++c)
    for (int r = 0; r < R; ++r) sum[r] += logits[c * R + r] = std::exp(logits[c * R + r] - top[r]);
  for (int c = 0; c < classes; ++c)
    for (int r = 0; r < R; ++r) logits[c * R + r] = y[c * R + r] - logits[c * R + r] / sum[r];
}

void euler(float* __restrict z, const float* __restrict error, const float* __restrict pull, int size, float step,
           float scale) {
  for (int i = 0; i < size; ++i) z[i] -= step * (scale * (error[i] - pull[i]));
}

void adam(float* __restrict z, float* __restrict m, float* __restrict v, const float* __restrict error,
          const float* __restrict pull, int size, float step, float correction, float eps, float scale) {
  for (int i = 0; i < size; ++i) {
    const float gradient = scale * (error[i] - pull[i]);
    m[i] += static_cast<float>(1.0 - BETA_1) * (gradient - m[i]);
    v[i] = static_cast<float>(BETA_2) * v[i] + static_cast<float>(1.0 - BETA_2) * gradient * gradient;
    z[i] -= step * m[i] / (std::sqrt(v[i]) * correction + eps);
  }
}

// ---- One tile

struct Free {
  void operator()(float* p) const { std::free(p); }
};
using Array = std::unique_ptr<float[], Free>;

Array zeros(size_t size) {
  const size_t bytes = (size * sizeof(float) + 63) / 64 * 64;
  float* memory = static_cast<float*>(std::aligned_alloc(64, bytes));
  if (!memory) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return Array(memory);
}

// The walkers that fit: each spans two layers, of which the cache holds states, moments and weights.
int64_t fitting_walkers(const Problem& p) {
  long cache = -1;
#ifdef _SC_LEVEL2_CACHE_SIZE
  cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  if (cache <= 0) cache = 512 * 1024;
  const int64_t layer = sizeof(float) * p.width * (3 * R + p.width);
  return std::clamp<int64_t>(cache / (2 * layer), 1, 6);
}

template <int ACTIVATION, int PHI>
class Tile {
 public:
  Tile(const Problem& problem, int64_t begin)
      : p(problem), begin(begin), count(static_cast<int>(std::min<int64_t>(R, p.batch - begin))),
        width(static_cast<int>(p.width)), classes(static_cast<int>(p.classes)), size(width * R), top(p.hidden - 1),
        z(zeros(p.hidden * size)), mu_1(zeros(size)), y(zeros(classes * R)), mu(zeros(size)), error(zeros(size)),
        h_below(zeros(size)), u_below(zeros(size)) {
    gather(mu_1.get(), p.mu_1, width);
  }

  // The feedforward sweep: every state is its prediction, by the very products of a step.
  void sweep() {
    std::copy_n(mu_1.get(), size, layer(0));
    for (int64_t j = 1; j <= top; ++j) {
      predict(j);
      std::copy_n(mu.get(), size, layer(j));
    }
    for (int64_t j = 0; j <= top; ++j) scatter(p.states + j * p.batch * width, layer(j), width);
  }

  void relax() {
    gather(y.get(), p.y, classes);
    for (int64_t j = 0; j <= top; ++j) gather(layer(j), p.states + j * p.batch * width, width);
    if (p.adam) {
      m = zeros(p.hidden * size);
      v = zeros(p.hidden * size);
    }
    std::vector<Walker> walkers(p.walkers ? p.walkers : fitting_walkers(p));
    for (auto& walker : walkers) walker = {0, zeros(size), zeros(size), zeros(classes * R), {}};
    if (p.steps > 0) descend(walkers, 1, 1);  // alone: it tells whether anything can be left out
    for (int64_t t = 2; t <= p.steps; t += walkers.size())
      descend(walkers, t, std::min<int64_t>(walkers.size(), p.steps - t + 1));
    for (int64_t j = 0; j <= top; ++j) scatter(p.states + j * p.batch * width, layer(j), width);
    write_errors(walkers[0]);
  }

 private:
  // One step on its way down: what it carries from a layer to the layer below.
  struct Walker {
    int64_t t;
    Array h, u;         // h(z) of the layer that it comes to, and what the error above pulls at that layer
    Array output;       // the output error at this step
    float inverse[R];   // 1 / rms of that layer
  };

  const Problem& p;
  const int64_t begin;                // first sample
  const int count;                    // samples in use; the last tile may have fewer than R
  const int width, classes, size;
  const int64_t top;
  Array z, mu_1, y, mu, error, h_below, u_below, m, v;
  float inverse_below[R];
  bool began_silent = true;

  float* layer(int64_t j) { return z.get() + j * size; }  // z_{j+1}
  const float* gain(int64_t j) const { return j < p.normalised ? p.gain + j * width : nullptr; }
  const float* weights(int64_t j) const { return p.w_hidden + j * width * width; }  // from layer j to j + 1

  // From rows (B, units) to (units, R); columns that are not in use repeat the first sample.
  void gather(float* tile, const float* rows, int units) const {
    for (int r = 0; r < R; ++r) {
      const float* row = rows + (begin + (r < count ? r : 0)) * units;
      for (int n = 0; n < units; ++n) tile[n * R + r] = row[n];
    }
  }

  void scatter(float* rows, const float* tile, int units) const {
    for (int r = 0; r < count; ++r) {
      float* row = rows + (begin + r) * units;
      for (int n = 0; n < units; ++n) row[n] = tile[n * R + r];
    }
  }

  // The prediction of layer j from the layer below, into mu; h_below and inverse_below are what made it.
  void predict(int64_t j) {
    encode<ACTIVATION, PHI>(h_below.get(), inverse_below, layer(j - 1), gain(j - 1), width, p.rms_eps);
    multiply(mu.get(), weights(j - 1), h_below.get(), width, width,
             p.b_hidden ? p.b_hidden + (j - 1) * width : nullptr);
    activate<ACTIVATION, PHI>(mu.get(), size);
  }

  // The error of layer j; for j > 0 mu becomes what its matrix sees of it.
  void compare_with_prediction(int64_t j) {
    if (j > 0) {
      predict(j);
      compare<ACTIVATION, PHI>(error.get(), mu.get(), layer(j), size);
    } else {
      for (int i = 0; i < size; ++i) error[i] = layer(0)[i] - mu_1[i];
    }
  }

  void compare_output(Walker& walker) {
    encode<ACTIVATION, PHI>(walker.h.get(), walker.inverse, layer(top), gain(top), width, p.rms_eps);
    multiply(walker.output.get(), p.w_out, walker.h.get(), classes, width, p.b_out);
    output_error(walker.output.get(), y.get(), classes);
  }

  // The lowest layer (from 0) that a signal has reached at step t, where the states began as their predictions: below
  // it, errors, moments and moves are exactly zero, and leaving them out changes no bit.
  int64_t lowest(int64_t t) const {
    if (t == 1 || !began_silent) return 0;
    int64_t reached = p.hidden - t;
    if (p.every) reached = std::min(reached, p.first - t);
    return std::max<int64_t>(reached, 0);
  }

  // Steps t, t + 1, ... go down together, each two layers behind the one before.
  void descend(std::vector<Walker>& walkers, int64_t t, int64_t together) {
    for (int64_t k = 0; k < together; ++k) walkers[k].t = t + k;
    for (int64_t i = 0; i <= top + 2 * (together - 1); ++i)
      for (int64_t k = 0; k < together; ++k) {
        const int64_t j = top - i + 2 * k;
        if (j >= 0 && j <= top) visit(walkers[k], j);
      }
  }

  void visit(Walker& walker, int64_t j) {
    if (j == top) {
      compare_output(walker);
      multiply_transposed(walker.u.get(), p.w_out, walker.output.get(), width, classes);
    }
    const int64_t low = lowest(walker.t);
    if (j < low) return;
    if (j == low && low > 0) {
      std::fill_n(error.get(), size, 0.0f);
    } else {
      compare_with_prediction(j);
      if (walker.t == 1) began_silent = began_silent && silent(error.get());
      if (j > 0) multiply_transposed(u_below.get(), weights(j - 1), mu.get(), width, width);
    }
    move(walker, j);
    std::swap(walker.h, h_below);
    std::swap(walker.u, u_below);
    std::copy_n(inverse_below, R, walker.inverse);
  }

  bool silent(const float* errors) const {
    return std::all_of(errors, errors + size, [](float e) { return e == 0.0f; });
  }

  // z_{j+1} one step down the energy.
  void move(Walker& walker, int64_t j) {
    float* pull = walker.u.get();
    encode_transposed<ACTIVATION, PHI>(pull, walker.h.get(), walker.inverse, layer(j), gain(j), width);
    const int64_t above_first = j + 1 - p.first;
    if (p.every && above_first >= 0 && above_first % p.every == 0) {
      const float* feedback = p.feedback + above_first / p.every * classes * width;
      multiply_transposed(mu.get(), feedback, walker.output.get(), width, classes);
      for (int i = 0; i < size; ++i) pull[i] -= mu[i];
    }
    if (p.adam) {
      const double step_size = p.step_size / (1.0 - std::pow(BETA_1, walker.t));
      const double correction = 1.0 / std::sqrt(1.0 - std::pow(BETA_2, walker.t));
      adam(layer(j), m.get() + j * size, v.get() + j * size, error.get(), pull, size, static_cast<float>(step_size),
           static_cast<float>(correction), p.eps, p.scale);
    } else {
      euler(layer(j), error.get(), pull, size, p.step_size, p.scale);
    }
  }

  void write_errors(Walker& walker) {
    for (int64_t j = 0; j <= top; ++j) {
      compare_with_prediction(j);
      scatter(p.errors + j * p.batch * width, error.get(), width);
    }
    compare_output(walker);
    scatter(p.output_error, walker.output.get(), classes);
  }
};

// ---- All tiles; they are independent, so the result does not depend on the number of threads

// False where there is not enough memory.
template <int ACTIVATION, int PHI>
bool run(const Problem& p, bool relaxing) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  auto work = [&]() noexcept {
    try {
      for (int64_t begin; !failed && (begin = R * next++) < p.batch;) {
        Tile<ACTIVATION, PHI> tile(p, begin);
        if (relaxing)
          tile.relax();
        else
          tile.sweep();
      }
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (int64_t i = 1; i < std::min(p.threads, (p.batch + R - 1) / R); ++i) helpers.emplace_back(work);
  } catch (const std::exception&) {
    // Fewer threads than asked for: the others do their work.
  }
  work();
  for (auto& helper : helpers) helper.join();
  return !failed;
}

bool dispatch(const Problem& p, bool relaxing) {
  using Run = bool (*)(const Problem&, bool);
  static constexpr Run table[4][2] = {{run<POST, RELU>, run<POST, TANH>},
                                      {run<PRE, RELU>, run<PRE, TANH>},
                                      {run<BOTH, RELU>, run<BOTH, TANH>},
                                      {run<PRE_NORM, RELU>, run<PRE_NORM, TANH>}};
  return table[p.activation][p.phi](p, relaxing);
}

}  // namespace

extern "C" {

// The states receive the feedforward sweep. Zero is success; otherwise memory has run out.
int highways_sweep(const Problem* problem) { return dispatch(*problem, false) ? 0 : 1; }

// The states are moved T steps down the energy; the errors receive what is left there.
int highways_relax(const Problem* problem) { return dispatch(*problem, true) ? 0 : 1; }
}
