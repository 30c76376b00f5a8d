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
//
// A product that is added to something is an explicit `fma`, and the compiler contracts nothing by itself
// (-ffp-contract=off): it would choose differently for the two halves of a tile, and the bits of a sample would depend
// on its place in the batch.

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

#include "problem.h"
#include "products.h"
#if defined(HIGHWAYS_MIXED)
#include "bf16.h"
#endif

namespace {

enum Activation { POST, PRE, BOTH, PRE_NORM };
enum Phi { RELU, TANH };

constexpr double BETA_1 = 0.9, BETA_2 = 0.999;

// The kernel `mixed`: the two products of a hidden layer are of bf16 numbers, applied to what has moved,
//
//     a = a0 + bf16(W) bf16(h - h0)      h0, a0 = W h0 + b: at the start, in float32
//     u = bf16(W)^T bf16(g)
//
// so that both roundings are relative to what has moved. The products of the output layer stay in float32.
#if defined(HIGHWAYS_MIXED)
using Products = Mixed;
#else
using Products = Float32;
#endif

// ---- Element by element

// A NaN stays one.
template <int PHI>
inline vec phi(vec a) {
  if (PHI == RELU) return vec{} > a ? vec{} : a;
  for (int i = 0; i < LANES; ++i) a[i] = std::tanh(a[i]);
  return a;
}

// delta phi'(a), with phi' from the activity phi(a).
template <int PHI>
inline vec times_slope(vec delta, vec activity) {
  if (PHI == RELU) return activity <= 0.0f ? vec{} : delta;
  return delta * fma(-activity, activity, spread(1.0f));
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

// ---- One tile

// The walkers that fit: each spans two layers, of which the cache holds states, moments and weights.
int64_t fitting_walkers(const Problem& p) {
  long cache = -1;
#ifdef _SC_LEVEL2_CACHE_SIZE
  cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  if (cache <= 0) cache = 512 * 1024;
  const int64_t layer = sizeof(float) * p.width * ((3 + Products::ARRAYS) * R + p.width);
  return std::clamp<int64_t>(cache / (2 * layer), 1, 6);
}

template <int ACTIVATION, int PHI>
class Tile {
 public:
  Tile(const Problem& problem, const Products::Weights& weights)
      : p(problem), products(problem, weights), width(static_cast<int>(p.width)), classes(static_cast<int>(p.classes)), size(width * R),
        top(p.hidden - 1), z(zeros(p.hidden * size)), inverse(zeros(p.hidden * R)), mu_1(zeros(size)),
        y(zeros(classes * R)), h(zeros(size)), error(zeros(size)), seen(zeros(size)), u_below(zeros(size)),
        radial_below(zeros(R)) {}

  // Take the samples from `first_sample` on.
  void take(int64_t first_sample) {
    begin = first_sample;
    count = static_cast<int>(std::min<int64_t>(R, p.batch - begin));
    gather(mu_1.get(), p.mu_1, width);
  }

  // The feedforward sweep: every state is its prediction, by the very products of a step.
  void sweep() {
    for (int64_t j = 0; j <= top; ++j) {
      predict(j, layer(j));
      start(j);
      scatter(p.states + j * p.batch * width, layer(j), width);
    }
  }

  void relax() {
    gather(y.get(), p.y, classes);
    for (int64_t j = 0; j <= top; ++j) {
      gather(layer(j), p.states + j * p.batch * width, width);
      start(j);
    }
    if (walkers.empty()) {
      walkers.resize(p.walkers ? p.walkers : fitting_walkers(p));
      for (auto& walker : walkers) walker = {0, zeros(size), zeros(R), zeros(classes * R)};
      if (p.adam || p.momentum) m = zeros(p.hidden * size);
      if (p.adam) v = zeros(p.hidden * size);
    } else {
      if (m) std::fill_n(m.get(), p.hidden * size, 0.0f);
      if (v) std::fill_n(v.get(), p.hidden * size, 0.0f);
    }
    const int64_t together = walkers.size();
    for (int64_t t = 1; t <= p.steps; t += together) descend(t, std::min(together, p.steps - t + 1));
    write();
  }

 private:
  // One step on its way down: what it carries from a layer to the layer below.
  struct Walker {
    int64_t t;
    Array u, radial;  // what the error above pulls at the layer that it comes to, as `pull` leaves it
    Array output;     // the output error at this step
  };

  static constexpr bool BEFORE = ACTIVATION == PRE_NORM, INSIDE = ACTIVATION == PRE || ACTIVATION == BOTH,
                        BEHIND = ACTIVATION == POST || ACTIVATION == BOTH;  // where phi stands: h = phi(n(phi(z))), phi(W h)

  const Problem& p;
  Products products;
  const int width, classes, size;
  const int64_t top;
  int64_t begin = 0;                  // first sample
  int count = 0;                      // samples in use; the last tile may have fewer than R
  std::vector<Walker> walkers;
  Array z, inverse;                   // of every layer: the states, and 1 / rms of every sample where normalised
  Array m, v;                         // of every layer: Adam's moments; m is Euler's velocity too
  Array mu_1, y;
  Array h, error, seen, u_below, radial_below;  // of the layer at hand; seen: what its matrix sees of the error

  float* layer(int64_t j) { return z.get() + j * size; }  // z_{j+1}
  const float* gain(int64_t j) const { return j < p.normalised ? p.gain + j * width : nullptr; }

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

  // What Eq. rmsnorm normalises of a state.
  static vec normalisable(vec z) { return BEFORE ? phi<PHI>(z) : z; }

  // 1 / rms of layer j from its sums of squares, and from its states.
  void set_inverse(int64_t j, const vec* squares) {
    for (int half = 0; half < 2; ++half)
      store(inverse.get() + j * R, 0, half, 1.0f / square_root(squares[half] / static_cast<float>(width) + p.rms_eps));
  }

  void measure(int64_t j) {
    if (!gain(j)) return;
    vec squares[2] = {};
    for (int n = 0; n < width; ++n)
      for (int half = 0; half < 2; ++half) {
        const vec q = normalisable(load(layer(j), n, half));
        squares[half] = fma(q, q, squares[half]);
      }
    set_inverse(j, squares);
  }

  // Layer j is where it starts.
  void start(int64_t j) {
    measure(j);
    if (j == top) return;
    encode(j);
    products.rest(j, h.get());
  }

  // h <- h(z_{j+1}), Eq. rmsnorm in the chosen reading.
  void encode(int64_t j) {
    const float *state = layer(j), *scale = gain(j), *over = inverse.get() + j * R;
    for (int n = 0; n < width; ++n)
      for (int half = 0; half < 2; ++half) {
        vec value = normalisable(load(state, n, half));
        if (scale) value = value * load(over, 0, half) * scale[n];
        store(h.get(), n, half, INSIDE ? phi<PHI>(value) : value);
      }
  }

  // done(n, half, mu) for the prediction of layer j > 0 from the layer below; h is what made it.
  template <class Done>
  void predict_with(int64_t j, const Done& done) {
    encode(j - 1);
    const float* skipped = p.skips ? layer(j - 1) : nullptr;
    products.forward(j - 1, h.get(), [&](int n, int half, vec a) {
      if (BEHIND) a = phi<PHI>(a);
      done(n, half, skipped ? a + load(skipped, n, half) : a);
    });
  }

  void predict(int64_t j, float* mu) {
    if (j == 0)
      std::copy_n(mu_1.get(), size, mu);
    else
      predict_with(j, [&](int n, int half, vec value) { store(mu, n, half, value); });
  }

  // pi eps of layer j, and what its matrix sees of it.
  void compare(int64_t j, float pi) {
    const float* state = layer(j);
    if (j == 0) {
      for (int i = 0; i < size; ++i) error[i] = pi * (state[i] - mu_1[i]);
      return;
    }
    predict_with(j, [&](int n, int half, vec mu) {
      const vec difference = pi * (load(state, n, half) - mu);
      store(error.get(), n, half, difference);
      if (BEHIND) store(seen.get(), n, half, times_slope<PHI>(difference, mu));
    });
  }

  void compare_output(Walker& walker, float pi) {
    encode(top);
    float* output = walker.output.get();
    multiply(p.w_out, h.get(), classes, width, p.b_out,
             [&](int n, int half, vec logit) { store(output, n, half, logit); });
    if (p.squared)
      for (int i = 0; i < classes * R; ++i) output[i] = y[i] - output[i];
    else
      output_error(output, y.get(), classes);
    for (int i = 0; i < classes * R; ++i) output[i] *= pi;
  }

  // What the error above pulls at layer j, whose h is at hand: (dh/dz)^T W^T error is (u - z radial) / rms where
  // normalised, else u. Past the matrix goes what is `skipped`, where not null.
  void pull(int64_t j, const float* above, const float* skipped, float* u, float* radial) {
    const float *state = layer(j), *scale = gain(j), *over = inverse.get() + j * R;
    vec sum[2] = {};
    const auto done = [&](int n, int half, vec value) {
      if (INSIDE) value = times_slope<PHI>(value, load(h.get(), n, half));
      if (scale) {
        value *= scale[n];
        sum[half] = fma(value, normalisable(load(state, n, half)), sum[half]);
      }
      store(u, n, half, skipped ? value + load(skipped, n, half) : value);
    };
    if (j == top)
      multiply_transposed(p.w_out, above, width, classes, done);
    else
      products.backward(j, above, done);
    for (int half = 0; half < 2; ++half) {
      const vec r = load(over, 0, half);
      store(radial, 0, half, sum[half] * r * r / static_cast<float>(width));
    }
  }

  // The lowest layer (from 0) that moves at step t, where the states began as their predictions: below it, errors,
  // moments and moves are exactly zero, and leaving them out changes no bit.
  int64_t lowest(int64_t t) const {
    if (!p.settled) return 0;
    int64_t reached = p.hidden - t;
    if (p.every) reached = std::min(reached, p.first - t);
    return std::max<int64_t>(reached, 0);
  }

  // Steps t, t + 1, ... go down together, each two layers behind the one before.
  void descend(int64_t t, int64_t together) {
    for (int64_t k = 0; k < together; ++k) walkers[k].t = t + k;
    for (int64_t i = 0; i <= top + 2 * (together - 1); ++i)
      for (int64_t k = 0; k < together; ++k) {
        const int64_t j = top - i + 2 * k;
        if (j >= 0 && j <= top) visit(walkers[k], j);
      }
  }

  void visit(Walker& walker, int64_t j) {
    const float* pi = p.precisions ? p.precisions + (walker.t - 1) * (p.hidden + 1) : nullptr;
    if (j == top) {
      compare_output(walker, pi ? pi[top + 1] : 1.0f);
      pull(top, walker.output.get(), nullptr, walker.u.get(), walker.radial.get());
    }
    const int64_t low = lowest(walker.t);
    if (j < low) return;
    const bool still = p.settled && (walker.t == 1 || (j == low && low > 0));  // it and what is below it
    if (still)
      std::fill_n(error.get(), size, 0.0f);
    else
      compare(j, pi ? pi[j] : 1.0f);
    if (still || p.cut || j == 0) {
      std::fill_n(u_below.get(), size, 0.0f);
      std::fill_n(radial_below.get(), R, 0.0f);
    } else {
      const float* skipped = p.skips ? error.get() : nullptr;
      pull(j - 1, (BEHIND ? seen : error).get(), skipped, u_below.get(), radial_below.get());
    }
    move(walker, j);
    std::swap(walker.u, u_below);
    std::swap(walker.radial, radial_below);
  }

  // z_{j+1} one step down the energy: eps - J^T eps_above, and alpha V eps_L at an endpoint.
  void move(Walker& walker, int64_t j) {
    float *state = layer(j), *m_j = m.get() + j * size, *v_j = v.get() + j * size;
    const float *u = walker.u.get(), *radial = walker.radial.get(), *over = inverse.get() + j * R;
    const bool normalised = gain(j);
    const int64_t above_first = j + 1 - p.first;
    const bool endpoint = p.every && above_first >= 0 && above_first % p.every == 0;
    const float* feedback = endpoint ? p.feedback + above_first / p.every * classes * width : nullptr;
    const float correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(BETA_2, walker.t)));
    const float step = static_cast<float>(p.adam ? p.step_size / (1.0 - std::pow(BETA_1, walker.t)) : p.step_size);
    vec squares[2] = {};

    const auto without_highway = [&](int n, int half) {
      vec pulled = load(u, n, half);
      const vec value = load(state, n, half), q = normalisable(value);
      if (normalised) pulled = fma(-q, load(radial, 0, half), pulled) * load(over, 0, half);
      if (BEFORE) pulled = times_slope<PHI>(pulled, q);
      return load(error.get(), n, half) - pulled;
    };
    const auto descend = [&](int n, int half, vec gradient) {
      gradient *= p.scale;
      vec value = load(state, n, half);
      if (p.adam) {
        vec first = load(m_j, n, half), second = load(v_j, n, half);
        first = fma(spread(1.0 - BETA_1), gradient - first, first);
        second = fma(static_cast<float>(1.0 - BETA_2) * gradient, gradient, static_cast<float>(BETA_2) * second);
        value -= step * first / fma(square_root(second), spread(correction), spread(p.eps));
        store(m_j, n, half, first);
        store(v_j, n, half, second);
      } else if (p.momentum) {
        const vec velocity = fma(spread(p.momentum), load(m_j, n, half), gradient);
        value = fma(spread(-step), fma(spread(p.momentum), velocity, gradient), value);
        store(m_j, n, half, velocity);
      } else {
        value = fma(spread(-step), gradient, value);
      }
      store(state, n, half, value);
      const vec q = normalisable(value);
      squares[half] = fma(q, q, squares[half]);
    };
    product<4>(feedback, 1, width, walker.output.get(), width, feedback ? classes : 0, without_highway, descend);
    if (normalised) set_inverse(j, squares);
  }

  // The states, their predictions and their errors.
  void write() {
    for (int64_t j = 0; j <= top; ++j) {
      const int64_t rows = j * p.batch * width;
      scatter(p.states + rows, layer(j), width);
      predict(j, seen.get());
      for (int i = 0; i < size; ++i) error[i] = layer(j)[i] - seen[i];
      scatter(p.predictions + rows, seen.get(), width);
      scatter(p.errors + rows, error.get(), width);
    }
    compare_output(walkers[0], 1.0f);
    scatter(p.output_error, walkers[0].output.get(), classes);
  }
};

// ---- All tiles; they are independent, so the result does not depend on the number of threads

// False where there is not enough memory.
template <int ACTIVATION, int PHI>
bool run(const Problem& p, bool relaxing) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  const Products::Weights weights(p, relaxing);
  auto work = [&]() noexcept {
    try {
      Tile<ACTIVATION, PHI> tile(p, weights);
      for (int64_t begin; !failed && (begin = R * next++) < p.batch;) {
        tile.take(begin);
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

// Zero is success; otherwise memory has run out.
int dispatch(const Problem& p, bool relaxing) noexcept {
  using Run = bool (*)(const Problem&, bool);
  static constexpr Run table[4][2] = {{run<POST, RELU>, run<POST, TANH>},
                                      {run<PRE, RELU>, run<PRE, TANH>},
                                      {run<BOTH, RELU>, run<BOTH, TANH>},
                                      {run<PRE_NORM, RELU>, run<PRE_NORM, TANH>}};
  try {
    return table[p.activation][p.phi](p, relaxing) ? 0 : 1;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

}  // namespace

extern "C" {

// Whether the bf16 products run on AMX: 1, 0 where the library knows none, -1 where the system refuses it.
int highways_amx() {
#if HIGHWAYS_AMX
  return amx() ? 1 : -1;
#else
  return 0;
#endif
}

// The states receive the feedforward sweep.
int highways_sweep(const Problem* problem) { return dispatch(*problem, false); }

// The states are moved T steps down the energy; the errors receive what is left there.
int highways_relax(const Problem* problem) { return dispatch(*problem, true); }
}
