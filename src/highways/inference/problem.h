#pragma once

#include <cstdint>

// What native.py describes; every array is contiguous.
struct Problem {
  int64_t hidden, width, classes, batch;  // L-1 hidden layers of N units, C classes, B samples
  int64_t activation, phi;                // Activation, Phi
  int64_t normalised;                     // how many states, from z_1 upwards, are normalised
  int64_t skips, squared;                 // mu_{l+1} = z_l + ... between hidden layers; the loss 1/2 ||y - mu_L||^2
  int64_t adam, steps;                    // Adam or Euler; T
  int64_t settled;                        // whether the states equal their predictions bit for bit
  int64_t first, every;                   // endpoints S: layers first, first + every, ... (0: no highways)
  int64_t cut;                            // whether the errors of hidden layers do not pull at the layers below
  int64_t threads;
  int64_t walkers;                        // steps that go down together; 0: as many as the cache has room for
  float rms_eps, step_size;
  float momentum, eps;                    // Euler's, in Nesterov's form; Adam's
  float scale;                            // of the gradient: 1 / B where the energy is the batch mean
  const float *w_hidden, *w_out;          // (L-2, N, N), (C, N)
  const float *gain;                      // (normalised, N)
  const float *b_hidden, *b_out;          // (L-2, N), (C), or null
  const float *feedback;                  // (|S|, C, N): alpha V_i, transposed
  const float *precisions;                // (T, L): pi_1..pi_L at every step, or null where all are 1
  const float *mu_1, *y;                  // (B, N), (B, C)
  float *states;                          // (L-1, B, N): z_1..z_{L-1}, read and written
  float *predictions, *errors;            // (L-1, B, N): mu_1..mu_{L-1} and eps_1..eps_{L-1} after the last step
  float *output_error;                    // (B, C): eps_L there
};
