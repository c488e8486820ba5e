package posenc

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of plain messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

// Field numbers of Tensor (tensor.proto).
const (
	dtypeField  = 1
	shapeField  = 2
	sharedField = 4
	dataField   = 15
)

// The largest message of protobuf: 2 GiB - 1.
const maxProtoBytes = math.MaxInt32

// sentTensor is a tensor and its field in the sent message.
type sentTensor struct {
	field  protowire.Number
	tensor Tensor
	shared bool // sends its place instead of its data
}

// sentMessage is a message whose tensors lie in the caller's memory. The
// tensors are framed here, so that generated code does not copy them.
type sentMessage struct {
	body    proto.Message // without the tensors
	tensors []sentTensor
	loans   *loans
	once    bool // must not be sent a second time
}

// frame returns a tensor's field without its data, which comes last.
func (s sentTensor) frame() []byte {
	var header, shape []byte
	if s.tensor.dtype != 0 {
		header = protowire.AppendTag(header, dtypeField, protowire.VarintType)
		header = protowire.AppendVarint(header, uint64(s.tensor.dtype))
	}
	for _, extent := range s.tensor.shape {
		shape = protowire.AppendVarint(shape, uint64(extent))
	}
	if len(shape) > 0 {
		header = protowire.AppendTag(header, shapeField, protowire.BytesType)
		header = protowire.AppendBytes(header, shape)
	}
	if s.shared {
		shared, _ := proto.Marshal(s.tensor.place.message())
		header = protowire.AppendTag(header, sharedField, protowire.BytesType)
		header = protowire.AppendBytes(header, shared)
	}
	data := s.data()
	if len(data) > 0 {
		header = protowire.AppendTag(header, dataField, protowire.BytesType)
		header = protowire.AppendVarint(header, uint64(len(data)))
	}
	frame := protowire.AppendTag(nil, s.field, protowire.BytesType)
	frame = protowire.AppendVarint(frame, uint64(len(header)+len(data)))
	return append(frame, header...)
}

// data returns the bytes that are sent.
func (s sentTensor) data() []byte {
	if s.shared {
		return nil
	}
	return s.tensor.data
}

func (m *sentMessage) size() int64 {
	size := int64(proto.Size(m.body))
	for _, t := range m.tensors {
		size += int64(len(t.frame())) + int64(len(t.data()))
	}
	return size
}

func (m *sentMessage) marshal() (mem.BufferSlice, error) {
	bytes, err := proto.Marshal(m.body)
	if err != nil {
		return nil, err
	}
	var slice mem.BufferSlice
	for _, t := range m.tensors {
		bytes = append(bytes, t.frame()...)
		data := t.data()
		if len(data) < lendFrom {
			bytes = append(bytes, data...)
			continue
		}
		slice = append(slice, mem.SliceBuffer(bytes), m.loans.lend(data))
		bytes = nil
	}
	if len(bytes) > 0 {
		slice = append(slice, mem.SliceBuffer(bytes))
	}
	return slice, nil
}

// receivedMessage is a message whose tensors are copied from the received bytes
// directly into memory for results.
type receivedMessage struct {
	body    proto.Message // gets everything but the tensors
	tensors []*receivedTensor
}

// receivedTensor is one field of a receivedMessage.
type receivedTensor struct {
	name   string // of the result, for errors
	field  protowire.Number
	into   []byte // memory for the data; nil: new memory
	place  *place // of `into`
	shared bool   // the server writes the result there
	tensor Tensor
	misfit *Error // the result does not fit into `into`; gRPC passes its text on only
}

// failure returns the error of a call. If the answer did not fit into an output,
// which only the answer shows, the error is about that output.
func (m *receivedMessage) failure(err error) error {
	for _, t := range m.tensors {
		if err != nil && t.misfit != nil {
			return t.misfit
		}
	}
	return err
}

// check returns an error unless the answer has the tensor with the wanted type
// and shape, and all of its bytes.
func (t *receivedTensor) check(wanted result) error {
	got := &t.tensor
	if !got.given {
		return newError(codes.Internal, "the answer has no %s", wanted.name)
	}
	bytes := int64(elementBytes(got.dtype))
	fits := bytes > 0 && got.dtype == wanted.dtype && (wanted.shape == nil || slices.Equal(got.shape, wanted.shape))
	for _, extent := range got.shape {
		// A shape larger than the bytes must not overflow.
		if fits = fits && extent >= 0 && (extent == 0 || bytes <= math.MaxInt64/extent); fits {
			bytes *= extent
		}
	}
	if fits && (t.shared || bytes == int64(len(got.data))) {
		return nil
	}
	text := fmt.Sprintf("the answer's %s is %v %v with %d bytes", wanted.name, got.dtype, got.shape, len(got.data))
	if wanted.shape == nil {
		return newError(codes.Internal, "%s", text)
	}
	return newError(codes.Internal, "%s; must be %v %v", text, wanted.dtype, wanted.shape)
}

func (m *receivedMessage) field(number protowire.Number) *receivedTensor {
	for _, t := range m.tensors {
		if t.field == number {
			return t
		}
	}
	return nil
}

func (m *receivedMessage) unmarshal(slice mem.BufferSlice) error {
	reader := slice.Reader()
	defer reader.Close()
	var rest []byte
	for reader.Remaining() > 0 {
		tag, err := binary.ReadUvarint(reader)
		if err != nil {
			return err
		}
		number, kind := protowire.DecodeTag(tag)
		into := m.field(number)
		if into == nil || kind != protowire.BytesType {
			rest = protowire.AppendVarint(rest, tag)
			if rest, err = appendField(rest, number, kind, reader); err != nil {
				return err
			}
			continue
		}
		length, err := readLength(reader)
		if err != nil {
			return err
		}
		if err := into.read(reader, length); err != nil {
			return err
		}
	}
	return proto.Unmarshal(rest, m.body)
}

// appendField copies a field's value, whose tag has been read.
func appendField(to []byte, number protowire.Number, kind protowire.Type, reader *mem.Reader) ([]byte, error) {
	length := 0
	switch kind {
	case protowire.VarintType:
		value, err := binary.ReadUvarint(reader)
		return protowire.AppendVarint(to, value), err
	case protowire.Fixed32Type:
		length = 4
	case protowire.Fixed64Type:
		length = 8
	case protowire.BytesType:
		var err error
		if length, err = readLength(reader); err != nil {
			return nil, err
		}
		to = protowire.AppendVarint(to, uint64(length))
	default:
		return nil, fmt.Errorf("field %d has wire type %d", number, kind)
	}
	if length > reader.Remaining() {
		return nil, io.ErrUnexpectedEOF
	}
	begin := len(to)
	to = append(to, make([]byte, length)...)
	_, err := io.ReadFull(reader, to[begin:])
	return to, err
}

func readLength(reader *mem.Reader) (int, error) {
	length, err := binary.ReadUvarint(reader)
	if err != nil {
		return 0, err
	}
	if length > uint64(reader.Remaining()) {
		return 0, io.ErrUnexpectedEOF
	}
	return int(length), nil
}

// read reads the tensor from the next `length` bytes.
func (t *receivedTensor) read(reader *mem.Reader, length int) error {
	t.tensor = Tensor{given: true}
	var rest []byte
	end := reader.Remaining() - length
	for reader.Remaining() > end {
		tag, err := binary.ReadUvarint(reader)
		if err != nil {
			return err
		}
		number, kind := protowire.DecodeTag(tag)
		if number != dataField || kind != protowire.BytesType {
			rest = protowire.AppendVarint(rest, tag)
			if rest, err = appendField(rest, number, kind, reader); err != nil {
				return err
			}
			continue
		}
		size, err := readLength(reader)
		if err != nil {
			return err
		}
		if t.tensor.data, err = t.memory(size); err != nil {
			return err
		}
		if _, err := io.ReadFull(reader, t.tensor.data); err != nil {
			return err
		}
	}
	var header posencv1.Tensor
	if err := proto.Unmarshal(rest, &header); err != nil {
		return err
	}
	t.tensor.dtype, t.tensor.shape, t.tensor.place = header.GetDtype(), header.GetShape(), t.place
	if t.shared {
		t.tensor.data = t.into
	}
	return nil
}

func (t *receivedTensor) memory(size int) ([]byte, error) {
	if t.into == nil {
		return newBytes(size), nil
	}
	if len(t.into) != size {
		t.misfit = wrongArgument(outputName(t.name), "has %d bytes; the result has %d", len(t.into), size)
		return nil, t.misfit
	}
	return t.into, nil
}

// codec adds the two kinds of messages to gRPC's own codec.
type codec struct{ plain encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if m, ok := message.(*sentMessage); ok {
		return m.marshal()
	}
	return c.plain.Marshal(message)
}

func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	if m, ok := message.(*receivedMessage); ok {
		return m.unmarshal(data)
	}
	return c.plain.Unmarshal(data, message)
}

// Name makes the content type application/grpc+proto: on the wire these are
// plain protobuf messages.
func (c codec) Name() string { return "proto" }
