package posenc

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/posenc/posenc/client/go/posencv1"
)

// Dtype is the element type of a tensor.
type Dtype = posencv1.Dtype

// The element types that tensors may have. Int32 and Int64 hold indices and positions; only rotated heads and weights
// may be FP8.
const (
	DtypeFloat32      = posencv1.Dtype_DTYPE_FLOAT32
	DtypeFloat16      = posencv1.Dtype_DTYPE_FLOAT16
	DtypeBFloat16     = posencv1.Dtype_DTYPE_BFLOAT16
	DtypeFloat64      = posencv1.Dtype_DTYPE_FLOAT64
	DtypeInt32        = posencv1.Dtype_DTYPE_INT32
	DtypeInt64        = posencv1.Dtype_DTYPE_INT64
	DtypeFloat8E4M3FN = posencv1.Dtype_DTYPE_FLOAT8_E4M3FN
	DtypeFloat8E5M2   = posencv1.Dtype_DTYPE_FLOAT8_E5M2
)

// Saturation is the treatment of results past the largest number of an FP8 type. Calls with FP8 heads require it.
type Saturation = posencv1.Saturation

// SaturationFinite: such results become that number. SaturationNone: they become infinity, or NaN in E4M3, which has no
// infinity.
const (
	SaturationFinite = posencv1.Saturation_SATURATION_FINITE
	SaturationNone   = posencv1.Saturation_SATURATION_NONE
)

// Tensor views a dense row-major tensor in the caller's or a result's memory. The zero Tensor means no tensor.
type Tensor struct {
	dtype Dtype
	shape []int64
	data  []byte
	given bool
	place *place // in a SharedRegion; nil elsewhere
}

// Float32 views elements as a tensor of this shape.
func Float32(elements []float32, shape ...int) Tensor { return viewOf(DtypeFloat32, elements, shape) }

// Float64 views elements as a tensor of this shape.
func Float64(elements []float64, shape ...int) Tensor { return viewOf(DtypeFloat64, elements, shape) }

// Float16 views the bits of IEEE binary16 elements as a tensor of this shape.
func Float16(bits []uint16, shape ...int) Tensor { return viewOf(DtypeFloat16, bits, shape) }

// BFloat16 views the bits of bfloat16 elements as a tensor of this shape.
func BFloat16(bits []uint16, shape ...int) Tensor { return viewOf(DtypeBFloat16, bits, shape) }

// Float8E4M3FN views the bits of FP8 elements, E4M3, as a tensor of this shape.
func Float8E4M3FN(bits []uint8, shape ...int) Tensor { return viewOf(DtypeFloat8E4M3FN, bits, shape) }

// Float8E5M2 views the bits of FP8 elements, E5M2, as a tensor of this shape.
func Float8E5M2(bits []uint8, shape ...int) Tensor { return viewOf(DtypeFloat8E5M2, bits, shape) }

// Int32 views elements, which are positions, as a tensor of this shape.
func Int32(elements []int32, shape ...int) Tensor { return viewOf(DtypeInt32, elements, shape) }

// Int64 views elements, which are positions, as a tensor of this shape.
func Int64(elements []int64, shape ...int) Tensor { return viewOf(DtypeInt64, elements, shape) }

// Bytes views little-endian data as a tensor of this type and shape.
func Bytes(dtype Dtype, data []byte, shape ...int) Tensor {
	return Tensor{dtype: dtype, shape: extents(shape), data: data, given: true}
}

func viewOf[T any](dtype Dtype, elements []T, shape []int) Tensor {
	return Bytes(dtype, bytesOf(elements), shape...)
}

// The wire is little-endian, and so is every supported machine.
func bytesOf[T any](elements []T) []byte {
	if len(elements) == 0 {
		return nil
	}
	if !littleEndian {
		panic("posenc: typed views need a little-endian machine; use posenc.Bytes")
	}
	size := len(elements) * int(unsafe.Sizeof(elements[0]))
	return unsafe.Slice((*byte)(unsafe.Pointer(&elements[0])), size)
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

func extents(shape []int) []int64 {
	result := make([]int64, len(shape))
	for i, extent := range shape {
		result[i] = int64(extent)
	}
	return result
}

// Given returns false for the zero Tensor.
func (t Tensor) Given() bool { return t.given }

// Dtype returns the type of the elements.
func (t Tensor) Dtype() Dtype { return t.dtype }

// Shape returns the extents, outermost first.
func (t Tensor) Shape() []int {
	shape := make([]int, len(t.shape))
	for i, extent := range t.shape {
		shape[i] = int(extent)
	}
	return shape
}

// Bytes returns the tensor's memory.
func (t Tensor) Bytes() []byte { return t.data }

// Float32s returns the tensor's memory as float32, or nil if it is of another type. So do the next ones.
func (t Tensor) Float32s() []float32 { return elementsOf[float32](t, DtypeFloat32) }

// Float64s returns the tensor's memory as float64.
func (t Tensor) Float64s() []float64 { return elementsOf[float64](t, DtypeFloat64) }

// Int32s returns the tensor's memory as int32.
func (t Tensor) Int32s() []int32 { return elementsOf[int32](t, DtypeInt32) }

// Int64s returns the tensor's memory as int64.
func (t Tensor) Int64s() []int64 { return elementsOf[int64](t, DtypeInt64) }

// Uint16s returns the tensor's memory as bits of float16 or bfloat16.
func (t Tensor) Uint16s() []uint16 { return elementsOf[uint16](t, DtypeFloat16, DtypeBFloat16) }

func elementsOf[T any](t Tensor, dtypes ...Dtype) []T {
	var element T
	size := int(unsafe.Sizeof(element))
	if !slices.Contains(dtypes, t.dtype) || len(t.data) < size {
		return nil
	}
	first := unsafe.Pointer(&t.data[0])
	if !littleEndian || uintptr(first)%uintptr(size) != 0 {
		panic("posenc: bytes of a foreign order or alignment; use Tensor.Bytes")
	}
	return unsafe.Slice((*T)(first), len(t.data)/size)
}

// elementBytes returns 0 for an unknown type.
func elementBytes(dtype Dtype) int {
	switch dtype {
	case DtypeFloat8E4M3FN, DtypeFloat8E5M2:
		return 1
	case DtypeFloat16, DtypeBFloat16:
		return 2
	case DtypeFloat32, DtypeInt32:
		return 4
	case DtypeFloat64, DtypeInt64:
		return 8
	default:
		return 0
	}
}

// sizeOf returns the bytes of a tensor; -1 if there can be none of this type and shape, in any memory.
func sizeOf(dtype Dtype, shape []int64) int64 {
	size := int64(elementBytes(dtype))
	if size == 0 || len(shape) > 0 && slices.Min(shape) < 0 {
		return -1
	}
	if slices.Contains(shape, 0) {
		return 0
	}
	for _, extent := range shape {
		if extent > (1<<60)/size {
			return -1
		}
		size *= extent
	}
	return size
}

// paste copies a part to its place in the tensor. Returns false if it does not fit.
func (t Tensor) paste(part Tensor, at []int64) bool {
	if part.mismatch(Tensor{dtype: t.dtype}) != "" || len(at) == 0 || len(at) != len(t.shape) || len(at) != len(part.shape) {
		return false
	}
	for i, offset := range at {
		if offset < 0 || part.shape[i] < 1 || part.shape[i] > t.shape[i]-offset {
			return false
		}
	}
	pasteInto(t.data, part.data, t.shape, part.shape, at)
	return true
}

func pasteInto(to, from []byte, whole, part, at []int64) {
	toStep, fromStep := int64(len(to))/whole[0], int64(len(from))/part[0]
	to = to[at[0]*toStep:]
	if slices.Equal(whole[1:], part[1:]) {
		copy(to, from)
		return
	}
	for i := range part[0] {
		pasteInto(to[i*toStep:(i+1)*toStep], from[i*fromStep:(i+1)*fromStep], whole[1:], part[1:], at[1:])
	}
}

// newBytes returns memory for a result, aligned for elements of 8 bytes.
func newBytes(size int) []byte {
	if size == 0 {
		return nil
	}
	words := make([]uint64, (size+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
}

// tensorOf returns a tensor that views the message's bytes.
func tensorOf(message *posencv1.Tensor) Tensor {
	return Tensor{dtype: message.GetDtype(), shape: message.GetShape(), data: message.GetData(), given: message != nil}
}

// described returns a message with the type and shape of the tensor.
func (t Tensor) described() *posencv1.Tensor {
	if !t.given {
		return nil
	}
	return &posencv1.Tensor{Dtype: t.dtype, Shape: t.shape}
}

// mismatch says how the tensor differs from one of this type and shape, which is nil if any will do.
func (t Tensor) mismatch(want Tensor) string {
	switch {
	case t.dtype != want.dtype:
		return fmt.Sprintf("is %v; must be %v", t.dtype, want.dtype)
	case want.shape != nil && !slices.Equal(t.shape, want.shape):
		return fmt.Sprintf("has shape %v; must have %v", t.shape, want.shape)
	case t.given && sizeOf(t.dtype, t.shape) != int64(len(t.data)):
		return fmt.Sprintf("has %d bytes, which do not fit %v of %v", len(t.data), t.shape, t.dtype)
	}
	return ""
}

// message returns a message with a copy of the tensor.
func (t Tensor) message() *posencv1.Tensor {
	message := t.described()
	if t.given {
		message.Data = slices.Clone(t.data)
	}
	return message
}
