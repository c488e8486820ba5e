package posenc

import (
	"cmp"
	"encoding/binary"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of all other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/posenc/posenc/client/go/posencv1"
)

// codec is gRPC's protobuf codec, except that it does not copy sent tensors, and copies received tensors only once.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if m, ok := message.(*lentMessage); ok {
		return m.marshal(m.ProtoReflect())
	}
	return c.CodecV2.Marshal(message)
}

func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	reader := data.Reader()
	defer reader.Close()
	return read(reader, reader.Remaining(), message.(proto.Message))
}

// lentMessage is a message whose tensors are sent from the caller's memory. It is also the mem.BufferPool of these
// tensors: gRPC returns a tensor to this pool when gRPC drops its last reference to the tensor.
type lentMessage struct {
	proto.Message
	lent sync.WaitGroup
}

// Fields with fewer bytes than this are copied, because a copy costs less than waiting until gRPC returns the field.
const lendFrom = 64 << 10

// marshal returns the message in pieces: first all small fields, then, for each large field, its tag and length and its
// bytes.
func (l *lentMessage) marshal(m protoreflect.Message) (mem.BufferSlice, error) {
	small, large, failed := shallow(m), mem.BufferSlice{}, error(nil)
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		var pieces mem.BufferSlice
		switch v := value.Interface().(type) {
		case []byte:
			if len(v) >= lendFrom {
				l.lent.Add(1)
				pieces = mem.BufferSlice{mem.NewBuffer(&v, l)}
			}
		case protoreflect.Message:
			if proto.Size(v.Interface()) >= lendFrom {
				pieces, failed = l.marshal(v)
			}
		}
		if pieces == nil {
			return failed == nil
		}
		small.Clear(field)
		head := protowire.AppendTag(nil, field.Number(), protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(pieces.Len()))
		large = append(append(large, mem.SliceBuffer(head)), pieces...)
		return true
	})
	head, err := proto.Marshal(small.Interface())
	if len(head) > 0 {
		large = slices.Insert(large, 0, mem.Buffer(mem.SliceBuffer(head)))
	}
	return large, cmp.Or(err, failed)
}

// shallow returns a new message that shares the values of m's fields.
func shallow(m protoreflect.Message) protoreflect.Message {
	to := m.New()
	to.SetUnknown(m.GetUnknown())
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		to.Set(field, value)
		return true
	})
	return to
}

// Get is part of mem.BufferPool, but is never called.
func (l *lentMessage) Get(int) *[]byte { return nil }

// Put is part of mem.BufferPool.
func (l *lentMessage) Put(*[]byte) { l.lent.Done() }

// recall waits until gRPC has returned all memory, so that the caller may change the tensors. If a connection ends,
// gRPC 1.80 does not return the buffers that it was sending. So recall waits for at most stuckTimeout and one second; a
// stuck connection is closed by then.
func (l *lentMessage) recall(stuckTimeout time.Duration) {
	returned := make(chan struct{})
	go func() {
		l.lent.Wait()
		close(returned)
	}()
	select {
	case <-returned:
	case <-time.After(stuckTimeout + time.Second):
	}
}

// Field number of Tensor.data, and of `data` in a stream's messages.
const dataField = 15

var tensorType = (*posencv1.Tensor)(nil).ProtoReflect().Descriptor()

// read adds the fields of a message of this length to m. If m already has enough memory for the bytes of `data`, read
// writes them to this memory. The protobuf library reads all fields except tensors and their `data`.
func read(reader *mem.Reader, length int, m proto.Message) error {
	var data *[]byte
	switch m := m.(type) {
	case *posencv1.Tensor:
		data = &m.Data
	case *posencv1.ApplyRopeStreamResponse:
		data = &m.Data
	}
	var rest []byte
	for end := reader.Remaining() - length; reader.Remaining() > end; {
		tag, err := binary.ReadUvarint(reader)
		if err != nil {
			return err
		}
		number, kind := protowire.DecodeTag(tag)
		head, size := protowire.AppendVarint(nil, tag), uint64(0) // size of the value after the head
		switch kind {
		case protowire.Fixed32Type:
			size = 4
		case protowire.Fixed64Type:
			size = 8
		default: // a number, or the length of bytes
			value, err := binary.ReadUvarint(reader)
			if err != nil {
				return err
			}
			head = protowire.AppendVarint(head, value)
			if kind == protowire.BytesType {
				size = value
			}
		}
		if size > uint64(max(reader.Remaining()-end, 0)) {
			return io.ErrUnexpectedEOF
		}
		field := m.ProtoReflect().Descriptor().Fields().ByNumber(number)
		switch {
		case kind == protowire.BytesType && data != nil && number == dataField:
			if *data = (*data)[:0]; uint64(cap(*data)) < size {
				*data = newBytes(int(size))
			}
			*data = (*data)[:size]
			reader.Read(*data)
		case kind == protowire.BytesType && field != nil && field.Message() == tensorType && !field.IsList():
			if err := read(reader, int(size), m.ProtoReflect().Mutable(field).Message().Interface()); err != nil {
				return err
			}
		default:
			rest = append(append(rest, head...), make([]byte, size)...)
			reader.Read(rest[len(rest)-int(size):])
		}
	}
	return proto.UnmarshalOptions{Merge: true}.Unmarshal(rest, m)
}
