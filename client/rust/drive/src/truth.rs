//! The expected values of conformance vectors, and their error bounds (proto/testdata/README.md).

use half::{bf16, f16};
use posenc::Dtype;
use serde_json::Value;

/// A number of up to 20 significant digits. `hi` is the nearest float64; `lo` is the number minus `hi`.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    pub hi: f64,
    pub lo: f64,
}

impl Truth {
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            // A number that is not a string has no more digits than a float64, so `lo` is 0.
            Value::Number(number) => Some(Self { hi: number.as_f64()?, lo: 0.0 }),
            Value::Bool(is) => Some(Self { hi: f64::from(u8::from(*is)), lo: 0.0 }),
            Value::String(text) => {
                let hi: f64 = text.replace("Infinity", "inf").parse().ok()?;
                Some(Self { hi, lo: if hi.is_finite() { rest(text, hi)? } else { 0.0 } })
            }
            _ => None,
        }
    }

    /// Returns |answer - truth|. The difference of two close numbers is exact, so `lo` is not lost.
    fn distance(self, answer: f64) -> f64 {
        ((answer - self.hi) - self.lo).abs()
    }
}

/// Returns the number in `text` minus `hi`, computed from the decimal digits of both.
fn rest(text: &str, hi: f64) -> Option<f64> {
    let (text, text_exponent) = digits(text)?;
    // `near` has 36 digits, which fit an i128. The texts have 20 digits.
    let (near, near_exponent) = digits(&format!("{hi:.35e}"))?;
    let shift = text_exponent - near_exponent;
    let text = text.checked_mul(10_i128.checked_pow(u32::try_from(shift).ok()?)?)?;
    Some((text - near) as f64 * 10_f64.powi(near_exponent))
}

/// Returns a decimal number as an integer and an exponent of ten.
fn digits(text: &str) -> Option<(i128, i32)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let number: i128 = format!("{whole}{fraction}").parse().ok()?;
    Some((number, exponent.parse::<i32>().ok()? - fraction.len() as i32))
}

/// Returns the index of the number nearest to `value` among all numbers of the type.
fn place(dtype: Dtype, value: f64) -> i64 {
    let (bits, sign_bit) = match dtype {
        Dtype::Float32 => (i64::from((value as f32).to_bits()), 1 << 31),
        Dtype::Float16 => (i64::from(f16::from_f64(value).to_bits()), 1 << 15),
        Dtype::Bfloat16 => (i64::from(bf16::from_f64(value).to_bits()), 1 << 15),
        Dtype::Float8E4m3fn | Dtype::Float8E5m2 => (i64::from(to_float8(dtype, value)), 1 << 7),
        _ => (value.to_bits() as i64, i64::MIN),
    };
    if bits & sign_bit == 0 { bits } else { -(bits & !sign_bit) }
}

/// Returns the distance from |value| to the next number of the type.
fn ulp(dtype: Dtype, value: f64) -> f64 {
    let (precision, smallest) = match dtype {
        Dtype::Float32 => (23, -126),
        Dtype::Float16 => (10, -14),
        Dtype::Bfloat16 => (7, -126),
        Dtype::Float8E4m3fn => (3, -6),
        Dtype::Float8E5m2 => (2, -14),
        _ => (52, -1022),
    };
    let exponent = if value == 0.0 { smallest } else { value.abs().log2().floor() as i32 };
    2_f64.powi(exponent.max(smallest) - precision)
}

/// Returns whether `answer`, element `index`, is within the bound.
pub fn is_within(bound: &Value, index: usize, dtype: Dtype, answer: f64, truth: Truth) -> bool {
    let number = |key: &str| bound[key].as_f64().unwrap_or(0.0);
    if truth.hi.is_infinite() {
        return answer == truth.hi;
    }
    let value = number("value");
    match bound["kind"].as_str() {
        // `lo` is ignored, because an exact float64 may have more than 20 digits.
        Some("exact") => answer == truth.hi,
        Some("ulp") => answer.is_finite() && (place(dtype, answer) - place(dtype, truth.hi)).abs() as f64 <= value,
        Some("absolute") => truth.distance(answer) <= value,
        Some("relative") => truth.distance(answer) <= value * truth.hi.abs(),
        Some("scaled") => {
            let scale = bound["scales"][index].as_f64().unwrap_or(0.0);
            let last = number("ulps") * ulp(dtype, answer.abs().max(truth.hi.abs()));
            truth.distance(answer) <= value * scale + last
        }
        _ => false,
    }
}

/// Returns a tensor's elements as f64.
pub fn elements(dtype: Dtype, data: &[u8]) -> Vec<f64> {
    let chunks = |size| data.chunks_exact(size);
    match dtype {
        Dtype::Float32 => chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect(),
        Dtype::Float64 => chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
        Dtype::Float16 => chunks(2).map(|b| f16::from_le_bytes(b.try_into().unwrap()).to_f64()).collect(),
        Dtype::Bfloat16 => chunks(2).map(|b| bf16::from_le_bytes(b.try_into().unwrap()).to_f64()).collect(),
        Dtype::Float8E4m3fn | Dtype::Float8E5m2 => data.iter().map(|&b| of_float8(dtype, b)).collect(),
        Dtype::Int8 => data.iter().map(|&b| f64::from(b as i8)).collect(),
        Dtype::Int32 => chunks(4).map(|b| f64::from(i32::from_le_bytes(b.try_into().unwrap()))).collect(),
        Dtype::Int64 => chunks(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect(),
        Dtype::Unspecified => Vec::new(),
    }
}

/// Converts elements to bytes of the type. Each element is rounded once.
pub fn to_bytes(dtype: Dtype, values: &[f64]) -> Vec<u8> {
    let values = values.iter().copied();
    match dtype {
        Dtype::Float32 => values.flat_map(|v| (v as f32).to_le_bytes()).collect(),
        Dtype::Float64 => values.flat_map(f64::to_le_bytes).collect(),
        Dtype::Float16 => values.flat_map(|v| f16::from_f64(v).to_le_bytes()).collect(),
        Dtype::Bfloat16 => values.flat_map(|v| bf16::from_f64(v).to_le_bytes()).collect(),
        Dtype::Float8E4m3fn | Dtype::Float8E5m2 => values.map(|v| to_float8(dtype, v)).collect(),
        Dtype::Int8 => values.map(|v| v as i8 as u8).collect(),
        Dtype::Int32 => values.flat_map(|v| (v as i32).to_le_bytes()).collect(),
        Dtype::Int64 => values.flat_map(|v| (v as i64).to_le_bytes()).collect(),
        Dtype::Unspecified => Vec::new(),
    }
}

/// Decodes an FP8 byte. An E5M2 byte is the upper half of a float16. E4M3 has no infinity.
pub fn of_float8(dtype: Dtype, bits: u8) -> f64 {
    if dtype == Dtype::Float8E5m2 {
        return f16::from_bits(u16::from(bits) << 8).to_f64();
    }
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    match (exponent, bits & 0x7f) {
        (_, 0x7f) => f64::NAN,
        (0, _) => sign * fraction * 2_f64.powi(-9),
        _ => sign * (8.0 + fraction) * 2_f64.powi(exponent - 10),
    }
}

/// Encodes the nearest FP8 number, with ties to even. Values that are too large become the largest number, and NaN
/// becomes 0x7f.
pub fn to_float8(dtype: Dtype, value: f64) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    if value.is_nan() {
        return 0x7f;
    }
    if dtype == Dtype::Float8E5m2 && value.is_infinite() {
        return sign | 0x7c;
    }
    let largest = if dtype == Dtype::Float8E5m2 { 0x7b } else { 0x7e };
    let size = value.abs();
    let away = |bits: u8| (of_float8(dtype, bits) - size).abs();
    let nearest = (0..=largest).min_by(|&a, &b| away(a).total_cmp(&away(b)).then((a & 1).cmp(&(b & 1))));
    sign | nearest.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_rest_of_a_number_is_what_float64_lacks() {
        let truth = Truth::of(&json!("0.1")).unwrap();
        // 0.1 is 0.1000000000000000055511151231257827 as float64.
        assert!((truth.lo + 5.551_115_123_125_783e-18).abs() < 1e-30, "{truth:?}");
        assert_eq!(Truth::of(&json!("-2.5e-3")).unwrap().hi, -0.0025);
    }

    #[test]
    fn bytes_of_float8_are_their_numbers() {
        for dtype in [Dtype::Float8E4m3fn, Dtype::Float8E5m2] {
            for bits in 0..=255 {
                let number = of_float8(dtype, bits);
                assert!(number.is_nan() || to_float8(dtype, number) == bits, "{dtype:?} {bits}");
            }
        }
        assert_eq!(of_float8(Dtype::Float8E4m3fn, 0x7e), 448.0);
        assert_eq!(of_float8(Dtype::Float8E5m2, 0x7b), 57344.0);
    }

    #[test]
    fn one_bit_is_one_step() {
        let bound = json!({"kind": "ulp", "value": 0});
        let truth = Truth::of(&json!("0.81461723385354470410")).unwrap();
        let right = 0.814_617_233_853_544_7_f64;
        assert!(is_within(&bound, 0, Dtype::Float32, f64::from(right as f32), truth));
        let wrong = f32::from_bits((right as f32).to_bits() + 1);
        assert!(!is_within(&bound, 0, Dtype::Float32, f64::from(wrong), truth));
    }

    #[test]
    fn nan_is_within_no_bound() {
        for kind in ["exact", "ulp", "absolute", "relative", "scaled"] {
            let bound = json!({"kind": kind, "value": 1e300, "scales": [1e300]});
            assert!(!is_within(&bound, 0, Dtype::Float32, f64::NAN, Truth { hi: 1.0, lo: 0.0 }), "{kind}");
        }
    }
}
