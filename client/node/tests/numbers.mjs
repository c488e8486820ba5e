// Floats of 16 and 8 bits, units in the last place, and the error bounds of the
// vectors. This code computes with bits, and uses no code of the client.

const formats = {
  float16: { exponent: 5, fraction: 10 },
  bfloat16: { exponent: 8, fraction: 7 },
  float32: { exponent: 8, fraction: 23 },
  float64: { exponent: 11, fraction: 52 },
  // This type has no infinity. A pattern with all bits 1 is NaN; the other patterns are numbers.
  float8_e4m3fn: { exponent: 4, fraction: 3, finite: true },
  float8_e5m2: { exponent: 5, fraction: 2 },
};

const signBit = ({ exponent, fraction }) => 1 << (exponent + fraction);

/** Returns the value of a bit pattern of a 16-bit or 8-bit float. */
export function bitsToNumber(bits, dtype) {
  const { exponent, fraction, finite } = formats[dtype];
  const sign = bits & signBit(formats[dtype]) ? -1 : 1;
  const e = (bits >> fraction) & (2 ** exponent - 1);
  const f = bits & (2 ** fraction - 1);
  const bias = 2 ** (exponent - 1) - 1;
  if (finite && (bits & 0x7f) === 0x7f) return NaN;
  if (!finite && e === 2 ** exponent - 1) return f ? NaN : sign * Infinity;
  return sign * (e === 0 ? f * 2 ** (1 - bias - fraction) : (f + 2 ** fraction) * 2 ** (e - bias - fraction));
}

/** Returns the distance from |x| to the next number of the type. */
export function ulp(x, dtype) {
  const { exponent, fraction } = formats[dtype];
  const bias = 2 ** (exponent - 1) - 1;
  const size = Math.abs(x);
  let e = size === 0 ? 1 - bias : Math.floor(Math.log2(size));
  // log2 is rounded, so e may be wrong by one.
  if (2 ** e > size) --e;
  if (2 ** (e + 1) <= size) ++e;
  return 2 ** (Math.max(e, 1 - bias) - fraction);
}

/** Returns the number of the type that is nearest to x, with ties to even. */
export function nearest(x, dtype) {
  if (!Number.isFinite(x) || dtype === "float64") return x;
  const unit = ulp(x, dtype);
  const steps = x / unit;
  const low = Math.floor(steps);
  const rest = steps - low;
  const even = low % 2 === 0 ? low : low + 1;
  const rounded = (rest < 0.5 ? low : rest > 0.5 ? low + 1 : even) * unit;
  const { exponent, fraction, finite } = formats[dtype];
  const largest = finite ? 448 : (2 - 2 ** -fraction) * 2 ** (2 ** (exponent - 1) - 1);
  return Math.abs(rounded) > largest ? Math.sign(x) * Infinity : rounded;
}

/** Returns the bit pattern of the 16-bit or 8-bit float that is nearest to x. */
export function nearestBits(x, dtype) {
  const { exponent, fraction, finite } = formats[dtype];
  const sign = x < 0 || Object.is(x, -0) ? signBit(formats[dtype]) : 0;
  const size = Math.abs(nearest(x, dtype));
  if (finite && !Number.isFinite(size)) return 0x7f;
  if (Number.isNaN(size)) return ((2 ** exponent - 1) << fraction) | 1;
  if (size === Infinity) return sign | ((2 ** exponent - 1) << fraction);
  const unit = ulp(size, dtype);
  const bias = 2 ** (exponent - 1) - 1;
  const e = Math.log2(unit) + fraction + bias;
  const steps = size / unit; // an exact integer
  return steps < 2 ** fraction ? sign | steps : sign | ((e << fraction) + (steps - 2 ** fraction));
}

/** Converts elements to numbers. */
export function doublesOf(data, dtype) {
  const narrow = formats[dtype]?.exponent + formats[dtype]?.fraction < 16;
  return Array.from(data, (value) => (narrow ? bitsToNumber(value, dtype) : Number(value)));
}

/**
 * Converts a decimal of up to 20 digits to the sum of two doubles: the nearest double, and the rest. The sum is exact
 * to 2^-100 of the decimal. One double is not enough, because error bounds are smaller than its rounding.
 */
function twoDoubles(text) {
  const high = Number(text);
  if (!Number.isFinite(high) || typeof text === "number") return [high, 0];
  const scale = 400n; // number of decimal places, more than any vector has
  const [, sign, whole, fraction = "", e = "0"] = /^(-?)(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d+))?$/.exec(text);
  const shift = scale - BigInt(fraction.length) + BigInt(e);
  const digits = BigInt(whole + fraction);
  const exact = (sign ? -1n : 1n) * (shift >= 0n ? digits * 10n ** shift : digits / 10n ** -shift);
  return [high, quotient(exact - scaled(high, scale), 10n ** scale)];
}

// Returns x * 10^scale as an integer, rounded down. x is a double.
function scaled(x, scale) {
  const unit = ulp(x, "float64");
  const steps = BigInt(x / unit);
  const power = Math.log2(unit);
  return power >= 0 ? steps * 2n ** BigInt(power) * 10n ** scale : (steps * 10n ** scale) / 2n ** BigInt(-power);
}

function quotient(a, b) {
  if (a === 0n) return 0;
  const negative = a < 0n;
  const size = negative ? -a : a;
  const extra = BigInt(Math.max(0, b.toString(2).length - size.toString(2).length + 64));
  const value = Number((size << extra) / b) * 2 ** -Number(extra);
  return negative ? -value : value;
}

/** Returns why an answer is not within its bound of the true value; "" if it is within the bound. */
export function differs(answer, truth, bound, dtype, index) {
  if (typeof truth === "string" && /[A-Z_]{3,}/.test(truth) && !/^-?Infinity$/.test(truth))
    return answer === truth ? "" : `is ${answer}; ${truth} expected`;
  if (typeof truth === "boolean" || bound.kind === "exact") {
    const wanted = typeof truth === "string" && typeof answer === "number" ? Number(truth) : truth;
    return answer === wanted ? "" : `is ${answer}; ${truth} expected`;
  }
  const [high, low] = twoDoubles(truth);
  if (!Number.isFinite(high)) return Object.is(answer, high) ? "" : `is ${answer}; ${truth} expected`;
  const off = Math.abs(answer - high - low);
  let allowed;
  if (bound.kind === "ulp") {
    const best = nearestToTruth(high, low, dtype);
    const steps = Math.abs(answer - best);
    allowed = Number(bound.value) * ulp(Math.max(Math.abs(best), Math.abs(answer)), dtype);
    return steps <= allowed ? "" : `is ${answer}; ${truth} expected, to ${bound.value} ulp`;
  }
  if (bound.kind === "absolute") allowed = Number(bound.value);
  else if (bound.kind === "relative") allowed = Number(bound.value) * Math.abs(high);
  else if (bound.kind === "scaled") {
    const units = Number(bound.ulps ?? 0) * ulp(Math.max(Math.abs(answer), Math.abs(high)), dtype);
    allowed = Number(bound.value) * Number(bound.scales[index]) + units;
  } else return `bound ${bound.kind} is not known`;
  // The factor allows for the rounding of `allowed`.
  return off <= allowed * (1 + 2 ** -50) ? "" : `is ${answer}; ${truth} expected, to ${allowed}`;
}

// Returns the number of the type that is nearest to high + low. `low` matters only if
// `high` is exactly in the middle between two numbers of the type.
function nearestToTruth(high, low, dtype) {
  const rounded = nearest(high, dtype);
  if (dtype === "float64" || low === 0 || Math.abs(high - rounded) !== ulp(high, dtype) / 2) return rounded;
  return low > 0 ? Math.max(rounded, 2 * high - rounded) : Math.min(rounded, 2 * high - rounded);
}
