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

// The element types. Indices and positions are Int32 or Int64. Only rotated heads and weights may be FP8, and only the
// keys of Reposition may be Int8.
const (
	DtypeFloat32      = posencv1.Dtype_DTYPE_FLOAT32
	DtypeFloat16      = posencv1.Dtype_DTYPE_FLOAT16
	DtypeBFloat16     = posencv1.Dtype_DTYPE_BFLOAT16
	DtypeFloat64      = posencv1.Dtype_DTYPE_FLOAT64
	DtypeInt32        = posencv1.Dtype_DTYPE_INT32
	DtypeInt64        = posencv1.Dtype_DTYPE_INT64
	DtypeFloat8E4M3FN = posencv1.Dtype_DTYPE_FLOAT8_E4M3FN
	DtypeFloat8E5M2   = posencv1.Dtype_DTYPE_FLOAT8_E5M2
	DtypeInt8         = posencv1.Dtype_DTYPE_INT8
)

// Saturation is the treatment of results that are larger than the largest number of a type of 8 bits. Calls with FP8
// heads require a Saturation, and calls with Int8 keys that are not blocks require SaturationFinite.
type Saturation = posencv1.Saturation

// With SaturationFinite, results that are too large become the largest number. With SaturationNone, they become
// infinity, or NaN in E4M3, which has no infinity.
const (
	SaturationFinite = posencv1.Saturation_SATURATION_FINITE
	SaturationNone   = posencv1.Saturation_SATURATION_NONE
)

// BlockFormat is a format of llama.cpp's blocks. The bytes of blocks are an Int8 tensor, whose last dimension counts
// bytes.
type BlockFormat = posencv1.BlockFormat

// The formats of blocks.
const (
	BlockFormatQ8_0 = posencv1.BlockFormat_BLOCK_FORMAT_Q8_0
	BlockFormatQ4_0 = posencv1.BlockFormat_BLOCK_FORMAT_Q4_0
)

// Tensor views a dense row-major tensor in the memory of the caller or of a result. The zero Tensor means no tensor.
type Tensor struct {
	m *posencv1.Tensor // has `data`, and also `shared` if the data is in a shared region
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

// Int8 views quantised keys, or the bytes of blocks, as a tensor of this shape.
func Int8(elements []int8, shape ...int) Tensor { return viewOf(DtypeInt8, elements, shape) }

// Int32 views elements, which are positions, as a tensor of this shape.
func Int32(elements []int32, shape ...int) Tensor { return viewOf(DtypeInt32, elements, shape) }

// Int64 views elements, which are positions, as a tensor of this shape.
func Int64(elements []int64, shape ...int) Tensor { return viewOf(DtypeInt64, elements, shape) }

// Bytes views little-endian data as a tensor of this type and shape.
func Bytes(dtype Dtype, data []byte, shape ...int) Tensor {
	m := &posencv1.Tensor{Dtype: dtype, Data: data}
	for _, extent := range shape {
		m.Shape = append(m.Shape, int64(extent))
	}
	return Tensor{m}
}

func viewOf[T any](dtype Dtype, elements []T, shape []int) Tensor {
	checkOrder()
	return Bytes(dtype, recast[byte](elements), shape...)
}

// recast views memory as elements of another type.
func recast[T, F any](from []F) []T {
	first := (*T)(unsafe.Pointer(unsafe.SliceData(from)))
	return unsafe.Slice(first, len(from)*int(unsafe.Sizeof(*new(F)))/int(unsafe.Sizeof(*new(T))))
}

// checkOrder panics on a big-endian machine, because tensors are sent from the caller's memory, and messages are
// little-endian.
func checkOrder() {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		panic("posenc: typed views need a little-endian machine; use posenc.Bytes and Tensor.Bytes")
	}
}

// Given returns false for the zero Tensor.
func (t Tensor) Given() bool { return t.m != nil }

// Dtype returns the type of the elements.
func (t Tensor) Dtype() Dtype { return t.m.GetDtype() }

// Shape returns the extents, outermost first.
func (t Tensor) Shape() []int {
	shape := make([]int, len(t.m.GetShape()))
	for i, extent := range t.m.GetShape() {
		shape[i] = int(extent)
	}
	return shape
}

// Bytes returns the tensor's memory.
func (t Tensor) Bytes() []byte { return t.m.GetData() }

// Float32s returns the tensor's memory as float32, or nil if the tensor has another type. The next methods do the same
// for their types.
func (t Tensor) Float32s() []float32 { return elementsOf[float32](t, DtypeFloat32) }

// Float64s returns the tensor's memory as float64.
func (t Tensor) Float64s() []float64 { return elementsOf[float64](t, DtypeFloat64) }

// Int8s returns the tensor's memory as int8.
func (t Tensor) Int8s() []int8 { return elementsOf[int8](t, DtypeInt8) }

// Int32s returns the tensor's memory as int32.
func (t Tensor) Int32s() []int32 { return elementsOf[int32](t, DtypeInt32) }

// Int64s returns the tensor's memory as int64.
func (t Tensor) Int64s() []int64 { return elementsOf[int64](t, DtypeInt64) }

// Uint16s returns the tensor's memory as bits of float16 or bfloat16.
func (t Tensor) Uint16s() []uint16 { return elementsOf[uint16](t, DtypeFloat16, DtypeBFloat16) }

func elementsOf[T any](t Tensor, dtypes ...Dtype) []T {
	if !slices.Contains(dtypes, t.Dtype()) {
		return nil
	}
	checkOrder()
	if uintptr(unsafe.Pointer(unsafe.SliceData(t.Bytes())))%unsafe.Alignof(*new(T)) != 0 {
		panic("posenc: the tensor's memory is not aligned; use Tensor.Bytes")
	}
	return recast[T](t.Bytes())
}

var elementBytes = map[Dtype]int64{
	DtypeFloat8E4M3FN: 1, DtypeFloat8E5M2: 1, DtypeInt8: 1, DtypeFloat16: 2, DtypeBFloat16: 2,
	DtypeFloat32: 4, DtypeInt32: 4, DtypeFloat64: 8, DtypeInt64: 8,
}

// sizeOf returns the size of a tensor in bytes, or -1 if no memory can hold a tensor of this type and shape.
func sizeOf(m *posencv1.Tensor) int64 {
	size := float64(elementBytes[m.GetDtype()]) // exact up to 2^53 bytes, more than any memory has
	if size == 0 || slices.ContainsFunc(m.GetShape(), func(extent int64) bool { return extent < 0 }) {
		return -1
	}
	for _, extent := range m.GetShape() {
		size *= float64(extent)
	}
	if size > 1<<53 {
		return -1
	}
	return int64(size)
}

// described returns a message with the type and shape of the tensor, or nil if the tensor is not given.
func (t Tensor) described() *posencv1.Tensor {
	if t.m == nil {
		return nil
	}
	return &posencv1.Tensor{Dtype: t.m.Dtype, Shape: t.m.Shape}
}

// message returns a message with a copy of the tensor.
func (t Tensor) message() *posencv1.Tensor {
	m := t.described()
	if m != nil {
		m.Data = slices.Clone(t.m.Data)
	}
	return m
}

// mismatch returns how the tensor differs from the type and shape of want, or "" if it does not differ. A nil shape
// means any shape.
func (t Tensor) mismatch(want *posencv1.Tensor) string {
	switch dtype, shape := t.Dtype(), t.m.GetShape(); {
	case dtype != want.GetDtype():
		return fmt.Sprintf("is %v; must be %v", dtype, want.GetDtype())
	case want.GetShape() != nil && !slices.Equal(shape, want.GetShape()):
		return fmt.Sprintf("has shape %v; must have %v", shape, want.GetShape())
	case t.Given() && sizeOf(t.m) != int64(len(t.m.Data)):
		return fmt.Sprintf("has %d bytes, which do not fit %v of %v", len(t.m.Data), shape, dtype)
	}
	return ""
}

// paste copies a part to its place in the tensor, or returns false if the part does not fit.
func (t Tensor) paste(part Tensor, at []int64) bool {
	whole, extents := t.m.GetShape(), part.m.GetShape()
	if part.mismatch(&posencv1.Tensor{Dtype: t.Dtype()}) != "" || len(at) == 0 || len(at) != len(whole) || len(at) != len(extents) {
		return false
	}
	for i, offset := range at {
		if offset < 0 || extents[i] < 1 || extents[i] > whole[i]-offset {
			return false
		}
	}
	pasteInto(t.Bytes(), part.Bytes(), whole, extents, at)
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
func newBytes(size int) []byte { return recast[byte](make([]uint64, (size+7)/8))[:size:size] }
