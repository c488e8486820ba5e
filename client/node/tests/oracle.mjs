// Computes rotary encodings directly from the formula, in double: pair i at position p
// is rotated by the angle p * theta^(-2i/d).

/** Returns the head x rotated to position p. The pairs are (i, i + d/2), or (2i, 2i + 1) if interleaved. */
export function rotateHead(x, p, { theta = 10000, interleaved = false } = {}) {
  const d = x.length;
  const y = new Array(d);
  for (let i = 0; i < d / 2; ++i) {
    const [a, b] = interleaved ? [2 * i, 2 * i + 1] : [i, i + d / 2];
    const phi = p * theta ** ((-2 * i) / d);
    y[a] = x[a] * Math.cos(phi) - x[b] * Math.sin(phi);
    y[b] = x[a] * Math.sin(phi) + x[b] * Math.cos(phi);
  }
  return y;
}

/** Rotates all heads of a row-major tensor. Its last axis is the channels; positionOf(i) is the position of head i. */
export function rotateAll(values, headDim, positionOf, options) {
  const out = [];
  for (let head = 0; head * headDim < values.length; ++head) {
    out.push(...rotateHead(Array.from(values.slice(head * headDim, (head + 1) * headDim)), positionOf(head), options));
  }
  return out;
}

/** Returns multiples of 1/32 in [-2, 2), which 16-bit floats represent exactly. */
export function numbers(count, seed = 1) {
  let state = seed;
  return Array.from({ length: count }, () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor(state / 16777216) / 32 - 2;
  });
}

/** Returns the largest difference between two elements. It is infinite for NaN and for missing elements. */
export function furthest(actual, expected) {
  if (actual.length !== expected.length) return Infinity;
  return expected.reduce((most, value, i) => {
    const off = Math.abs(actual[i] - value);
    return Number.isNaN(off) ? Infinity : Math.max(most, off);
  }, 0);
}
