"""How far the output error travels: one clamped image, a long relaxation, every layer's error at every step."""
