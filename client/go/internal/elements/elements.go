// Package elements decodes elements of tensors, for tests.
package elements

import (
	"encoding/binary"
	"math"

	"github.com/posenc/posenc/client/go/posencv1"
)

var sizes = map[posencv1.Dtype]int{
	posencv1.Dtype_DTYPE_FLOAT32: 4, posencv1.Dtype_DTYPE_FLOAT64: 8,
	posencv1.Dtype_DTYPE_FLOAT16: 2, posencv1.Dtype_DTYPE_BFLOAT16: 2,
	posencv1.Dtype_DTYPE_INT32: 4, posencv1.Dtype_DTYPE_INT64: 8,
	posencv1.Dtype_DTYPE_FLOAT8_E4M3FN: 1, posencv1.Dtype_DTYPE_FLOAT8_E5M2: 1, posencv1.Dtype_DTYPE_INT8: 1,
}

// Size returns the size of an element in bytes.
func Size(dtype posencv1.Dtype) int { return sizes[dtype] }

// Values returns the elements. int64 elements above 2^53 are rounded.
func Values(dtype posencv1.Dtype, data []byte) []float64 {
	var values []float64
	for at := 0; sizes[dtype] > 0 && at+sizes[dtype] <= len(data); at += sizes[dtype] {
		values = append(values, Value(dtype, data[at:]))
	}
	return values
}

// Value returns the first element.
func Value(dtype posencv1.Dtype, data []byte) float64 {
	order := binary.LittleEndian
	switch dtype {
	case posencv1.Dtype_DTYPE_FLOAT32:
		return float64(math.Float32frombits(order.Uint32(data)))
	case posencv1.Dtype_DTYPE_FLOAT64:
		return math.Float64frombits(order.Uint64(data))
	case posencv1.Dtype_DTYPE_BFLOAT16:
		return float64(math.Float32frombits(uint32(order.Uint16(data)) << 16))
	case posencv1.Dtype_DTYPE_FLOAT16:
		return smallFloat(order.Uint16(data), 5, 10)
	case posencv1.Dtype_DTYPE_FLOAT8_E5M2:
		return smallFloat(uint16(data[0]), 5, 2)
	case posencv1.Dtype_DTYPE_FLOAT8_E4M3FN:
		if data[0]&127 == 127 {
			return math.NaN()
		}
		return smallFloat(uint16(data[0]), 4, 3)
	case posencv1.Dtype_DTYPE_INT8:
		return float64(int8(data[0]))
	case posencv1.Dtype_DTYPE_INT32:
		return float64(int32(order.Uint32(data)))
	default:
		return float64(int64(order.Uint64(data)))
	}
}

// smallFloat decodes a number with one sign bit, exponentBits bits of exponent
// and fractionBits bits of fraction. The largest exponent means infinity or
// NaN, as in IEEE 754, only if the exponent has 5 bits.
func smallFloat(bits uint16, exponentBits, fractionBits int) float64 {
	sign := 1 - 2*float64(bits>>(exponentBits+fractionBits))
	exponent := int(bits>>fractionBits) & (1<<exponentBits - 1)
	fraction := float64(bits & (1<<fractionBits - 1))
	lowest := 2 - 1<<(exponentBits-1) - fractionBits // exponent of the smallest subnormal number
	switch {
	case exponent == 31 && fraction != 0:
		return math.NaN()
	case exponent == 31:
		return math.Inf(int(sign))
	case exponent == 0:
		return sign * math.Ldexp(fraction, lowest)
	default:
		return sign * math.Ldexp(float64(int(1)<<fractionBits)+fraction, lowest+exponent-1)
	}
}
