"""How far the output error travels: the error of every layer in a long relaxation of one clamped image."""
