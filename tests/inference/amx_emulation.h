// The tile instructions of AMX in plain C++, included before the kernel's source to try its use of them anywhere.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#undef __AMX_TILE__
#undef __AMX_BF16__
#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#define syscall(...) 0L  // the permission is given

struct Tiles {
  uint16_t bytes[8];
  uint8_t rows[8];
  uint32_t of[8][16][16];
};
static thread_local Tiles tiles_;

static inline void configure(const void* from) {
  const uint8_t* config = static_cast<const uint8_t*>(from);
  memcpy(tiles_.bytes, config + 16, 16);
  memcpy(tiles_.rows, config + 48, 8);
}
static inline void load_tile(int t, const void* from, long stride) {
  for (int i = 0; i < tiles_.rows[t]; ++i)
    memcpy(tiles_.of[t][i], static_cast<const char*>(from) + i * stride, tiles_.bytes[t]);
}
static inline void store_tile(int t, void* to, long stride) {
  for (int i = 0; i < tiles_.rows[t]; ++i) memcpy(static_cast<char*>(to) + i * stride, tiles_.of[t][i], tiles_.bytes[t]);
}
static inline float number(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static inline void multiply_tile(int c, int a, int b) {
  for (int i = 0; i < tiles_.rows[c]; ++i)
    for (int k = 0; k < tiles_.bytes[a] / 4; ++k)
      for (int j = 0; j < tiles_.bytes[c] / 4; ++j) {
        const uint32_t x = tiles_.of[a][i][k], y = tiles_.of[b][k][j];
        float sum = number(tiles_.of[c][i][j]);
        sum += number(x << 16) * number(y << 16);
        sum += number(x & 0xffff0000u) * number(y & 0xffff0000u);
        memcpy(&tiles_.of[c][i][j], &sum, 4);
      }
}

#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_release
#define _tile_loadconfig(from) configure(from)
#define _tile_release() memset(&tiles_, 0, sizeof tiles_)
#define _tile_loadd(t, from, stride) load_tile(t, from, stride)
#define _tile_stored(t, to, stride) store_tile(t, to, stride)
#define _tile_zero(t) memset(tiles_.of[t], 0, sizeof tiles_.of[t])
#define _tile_dpbf16ps(c, a, b) multiply_tile(c, a, b)
