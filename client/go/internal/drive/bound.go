package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	posenc "github.com/posenc/posenc/client/go"
	"github.com/posenc/posenc/client/go/internal/elements"
	"github.com/posenc/posenc/client/go/posencv1"
)

// bound is the largest allowed error of an answer.
type bound struct {
	Kind   string
	Value  float64
	Scales []float64
	Ulps   float64
}

// format is an element type: the bits of its significand, and the exponent of
// its smallest step.
type format struct{ bits, smallest int }

var formats = map[posenc.Dtype]format{
	posenc.DtypeFloat32:      {24, -149},
	posenc.DtypeFloat16:      {11, -24},
	posenc.DtypeBFloat16:     {8, -133},
	posenc.DtypeFloat64:      {53, -1074},
	posenc.DtypeFloat8E4M3FN: {4, -9},
	posenc.DtypeFloat8E5M2:   {3, -16},
}

// step is the exponent of the format's step at a number below 2^exponent.
func (f format) step(exponent int) int { return max(exponent-f.bits, f.smallest) }

// ulp is the format's step at x.
func (f format) ulp(x float64) float64 {
	_, exponent := math.Frexp(x)
	if x == 0 {
		return math.Ldexp(1, f.smallest)
	}
	return math.Ldexp(1, f.step(exponent))
}

// nearest rounds x to the nearest number of the format, with ties to even.
func (f format) nearest(x *big.Float) float64 {
	if x.Sign() == 0 || x.IsInf() {
		value, _ := x.Float64()
		return value
	}
	exponent := x.MantExp(nil)
	step := f.step(exponent)
	if bits := exponent - step; bits > 0 {
		rounded := new(big.Float).SetPrec(uint(bits)).SetMode(big.ToNearestEven).Set(x)
		value, _ := rounded.Float64()
		return value
	}
	// x is below the smallest step. It becomes one step if it is larger than half
	// a step, else 0.
	half := new(big.Float).SetMantExp(big.NewFloat(1), step-1)
	if new(big.Float).Abs(x).Cmp(half) <= 0 {
		return 0
	}
	return math.Copysign(math.Ldexp(1, step), float64(x.Sign()))
}

// encode rounds values to a type and returns their bytes.
func encode(dtype posenc.Dtype, values []float64) ([]byte, bool) {
	var data []byte
	order := binary.LittleEndian
	for _, value := range values {
		switch dtype {
		case posenc.DtypeFloat32:
			data = order.AppendUint32(data, math.Float32bits(float32(value)))
		case posenc.DtypeFloat64:
			data = order.AppendUint64(data, math.Float64bits(value))
		case posenc.DtypeBFloat16:
			rounded := formats[dtype].nearest(big.NewFloat(value))
			data = order.AppendUint16(data, uint16(math.Float32bits(float32(rounded))>>16))
		case posenc.DtypeFloat16:
			data = order.AppendUint16(data, formats[dtype].encode(value, 16))
		case posenc.DtypeFloat8E4M3FN, posenc.DtypeFloat8E5M2:
			data = append(data, uint8(formats[dtype].encode(value, 8)))
		case posenc.DtypeInt8:
			data = append(data, uint8(int8(value)))
		case posenc.DtypeInt32:
			data = order.AppendUint32(data, uint32(int32(value)))
		case posenc.DtypeInt64:
			data = order.AppendUint64(data, uint64(int64(value)))
		default:
			return nil, false
		}
	}
	return data, true
}

// encode returns the bits of x, rounded to a format of `width` bits.
func (f format) encode(x float64, width int) uint16 {
	x = f.nearest(big.NewFloat(x))
	sign := uint16(math.Float64bits(x)>>63) << (width - 1)
	fraction, exponent := math.Frexp(math.Abs(x)) // x = fraction * 2^exponent
	lowest := f.smallest + f.bits                 // exponent of the smallest normal number
	switch {
	case x == 0:
		return sign
	case exponent < lowest: // subnormal: a multiple of the smallest step
		return sign | uint16(math.Ldexp(fraction, exponent-f.smallest))
	default:
		mantissa := uint16(math.Ldexp(fraction, f.bits)) &^ (1 << (f.bits - 1))
		return sign | uint16(exponent-lowest+1)<<(f.bits-1) | mantissa
	}
}

// check compares one field of an answer with the expectation.
func (e expectation) check(answer reply) error {
	got, err := answer.find(e.Path)
	if err != nil {
		return err
	}
	if e.Dtype != "" && got.dtype.String() != e.Dtype {
		return fmt.Errorf("is %v; expected %s", got.dtype, e.Dtype)
	}
	if !slices.Equal(got.shape, e.Shape) {
		return fmt.Errorf("has shape %v; expected %v", got.shape, e.Shape)
	}
	if len(got.values) != len(e.Values) {
		return fmt.Errorf("has %d values; expected %d", len(got.values), len(e.Values))
	}
	f, known := formats[got.dtype]
	if !known {
		f = formats[posenc.DtypeFloat64]
	}
	for i, expected := range e.Values {
		if err := e.Bound.check(i, got.values[i], expected, f); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

// check compares an answer, a float64, bool or string, with the truth.
func (b bound) check(i int, answer, expected any, f format) error {
	a, isNumber := answer.(float64)
	if !isNumber {
		if answer != expected {
			return fmt.Errorf("is %v; expected %v", answer, expected)
		}
		return nil
	}
	truth, _, err := big.ParseFloat(strings.TrimSuffix(fmt.Sprint(expected), "inity"), 10, 200, big.ToNearestEven)
	if err != nil {
		return fmt.Errorf("the truth %v: %w", expected, err)
	}
	wrong := fmt.Errorf("is %v; expected %v within %s %v", a, expected, b.Kind, b.Value)
	if math.IsNaN(a) {
		return wrong
	}
	if truth.IsInf() || math.IsInf(a, 0) {
		if !truth.IsInf() || !math.IsInf(a, truth.Sign()) {
			return wrong
		}
		return nil
	}
	t, _ := truth.Float64()
	difference := new(big.Float).SetPrec(200).Sub(big.NewFloat(a), truth)
	allowed := 0.0
	switch b.Kind {
	case "exact", "ulp": // expected numbers have 20 digits, so they must be rounded to the type, also for "exact"
		nearest := f.nearest(truth)
		difference.Sub(big.NewFloat(a), big.NewFloat(nearest))
		allowed = b.Value * f.ulp(nearest)
	case "absolute":
		allowed = b.Value
	case "relative":
		allowed = b.Value * math.Abs(t)
	case "scaled":
		allowed = b.Value*b.Scales[i] + b.Ulps*f.ulp(max(math.Abs(a), math.Abs(t)))
	default:
		return fmt.Errorf("bound %q is not known here", b.Kind)
	}
	if difference.Abs(difference).Cmp(big.NewFloat(allowed)) > 0 {
		return wrong
	}
	return nil
}

// found is a field of an answer, with its values in one list.
type found struct {
	dtype  posenc.Dtype
	shape  []int64
	values []any // float64, bool, text, or an enum value's name
}

func (r reply) find(path string) (found, error) {
	if tensor, ok := r.tensors[path]; ok {
		if !tensor.Given() {
			return found{}, fmt.Errorf("is missing")
		}
		return foundIn(tensor, elements.Values(tensor.Dtype(), tensor.Bytes())), nil
	}
	if r.message == nil {
		return found{}, fmt.Errorf("is missing")
	}
	m := r.message.ProtoReflect()
	names := strings.Split(path, ".")
	for i := 0; i < len(names); i++ {
		name := names[i]
		field := m.Descriptor().Fields().ByJSONName(name)
		if field == nil {
			return found{}, fmt.Errorf("%s has no such field", m.Descriptor().Name())
		}
		value := m.Get(field)
		if field.IsList() && len(names) > i+1 {
			index, err := strconv.Atoi(names[i+1])
			if err != nil || index < 0 || index >= value.List().Len() {
				return found{}, fmt.Errorf("is missing")
			}
			value = value.List().Get(index)
			i++
		} else if field.IsList() {
			list := found{shape: []int64{int64(value.List().Len())}}
			for j := range value.List().Len() {
				list.values = append(list.values, plain(field, value.List().Get(j)))
			}
			return list, nil
		}
		if field.Message() == nil {
			return found{shape: []int64{}, values: []any{plain(field, value)}}, nil
		}
		m = value.Message()
		if tensor, ok := m.Interface().(*posencv1.Tensor); ok && i == len(names)-1 {
			return foundMessage(tensor), nil
		}
	}
	return found{}, fmt.Errorf("is a message")
}

func foundIn(tensor posenc.Tensor, values []float64) found {
	f := found{dtype: tensor.Dtype(), shape: []int64{}}
	for _, extent := range tensor.Shape() {
		f.shape = append(f.shape, int64(extent))
	}
	for _, value := range values {
		f.values = append(f.values, value)
	}
	return f
}

func foundMessage(m *posencv1.Tensor) found {
	var shape []int
	for _, extent := range m.GetShape() {
		shape = append(shape, int(extent))
	}
	tensor := posenc.Bytes(m.GetDtype(), m.GetData(), shape...)
	if len(m.GetValues()) > 0 {
		return foundIn(tensor, m.GetValues())
	}
	return foundIn(tensor, elements.Values(tensor.Dtype(), tensor.Bytes()))
}

func plain(field protoreflect.FieldDescriptor, value protoreflect.Value) any {
	if field.Enum() != nil {
		return string(field.Enum().Values().ByNumber(value.Enum()).Name())
	}
	switch v := value.Interface().(type) {
	case int32:
		return float64(v)
	case int64:
		return float64(v)
	default:
		return v
	}
}
