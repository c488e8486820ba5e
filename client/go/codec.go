package posenc

import (
	"cmp"
	"encoding/binary"
	"fmt"
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

// codec is gRPC's own, which copies all bytes, but for messages that know a better way. On the wire they are alike.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if m, ok := message.(*lentMessage); ok {
		return m.loans.marshal(m.ProtoReflect())
	}
	return c.CodecV2.Marshal(message)
}

func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	m, ok := message.(interface{ unmarshal(*mem.Reader) error })
	if !ok {
		return c.CodecV2.Unmarshal(data, message)
	}
	reader := data.Reader()
	defer reader.Close()
	return m.unmarshal(reader)
}

// lentMessage is a message whose tensors are sent from the caller's memory.
type lentMessage struct {
	proto.Message
	loans *loans
}

// loans counts the memory that a call has lent to its connection. It is a buffer pool: gRPC gives a buffer back to its
// pool with the last reference.
type loans struct{ sync.WaitGroup }

// Fields of fewer bytes are copied, which costs less than to wait for their return.
const lendFrom = 64 << 10

// marshal returns the message in pieces: all small fields, and then of each large one its head and its bytes.
func (l *loans) marshal(m protoreflect.Message) (mem.BufferSlice, error) {
	small, large, failed := m.New(), mem.BufferSlice{}, error(nil)
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		var pieces mem.BufferSlice
		switch v := value.Interface().(type) {
		case []byte:
			if len(v) >= lendFrom {
				l.Add(1)
				pieces = mem.BufferSlice{mem.NewBuffer(&v, l)}
			}
		case protoreflect.Message:
			if proto.Size(v.Interface()) >= lendFrom {
				pieces, failed = l.marshal(v)
			}
		}
		if pieces == nil {
			small.Set(field, value)
			return failed == nil
		}
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

// Get is part of mem.BufferPool. It is never called.
func (l *loans) Get(int) *[]byte { return nil }

// Put is part of mem.BufferPool.
func (l *loans) Put(*[]byte) { l.Done() }

// recall waits until all memory has come back, so that the caller may change the tensors. gRPC (1.80) does not give
// back what an ended connection was sending. So the wait ends, too, when a stuck connection must have ended.
func (l *loans) recall(stuckTimeout time.Duration) {
	returned := make(chan struct{})
	go func() {
		l.Wait()
		close(returned)
	}()
	select {
	case <-returned:
	case <-time.After(stuckTimeout + time.Second):
	}
}

// Field number of Tensor.data, and of `data` in a stream's messages.
const dataField = 15

// answer is a message whose tensors are copied from the received bytes directly to the memory for results.
type answer struct {
	proto.Message // gets all other fields
	results       []*result
}

func (a *answer) unmarshal(reader *mem.Reader) error {
	rest, err := readFields(reader, reader.Remaining(), func(number protowire.Number, length int) (bool, error) {
		field := a.ProtoReflect().Descriptor().Fields().ByNumber(number)
		for _, r := range a.results {
			if field != nil && field.Name() == r.name {
				return true, r.read(reader, length)
			}
		}
		return false, nil
	})
	return cmp.Or(err, proto.Unmarshal(rest, a.Message))
}

// read reads a tensor of this length. Only check finds that its data does not fit the caller's memory.
func (r *result) read(reader *mem.Reader, length int) error {
	into, got := r.into.Bytes(), &posencv1.Tensor{}
	rest, err := readFields(reader, length, func(field protowire.Number, length int) (bool, error) {
		if field != dataField {
			return false, nil
		}
		if got.Data = into; len(into) != length {
			got.Data = newBytes(length)
		}
		reader.Read(got.Data)
		return true, nil
	})
	if err == nil {
		err = proto.UnmarshalOptions{Merge: true}.Unmarshal(rest, got)
	}
	if got.Shared != nil {
		got.Data = into
	}
	got.Shared = r.into.m.GetShared()
	r.got = Tensor{got}
	return err
}

// streamed copies the `data` of a stream's answers to the results, one after the other.
type streamed struct {
	into        [][]byte // what is not filled yet
	done, total int64
	progress    func(done, total int64) // nil: nobody asks
}

func (s *streamed) unmarshal(reader *mem.Reader) error {
	_, err := readFields(reader, reader.Remaining(), func(field protowire.Number, length int) (bool, error) {
		if field != dataField {
			return false, nil
		}
		if s.done += int64(length); s.done > s.total {
			return false, fmt.Errorf("the server's answer does not fit: it has more than %d bytes", s.total)
		}
		for length > 0 {
			n, _ := reader.Read(s.into[0][:min(length, len(s.into[0]))])
			length -= n
			if s.into[0] = s.into[0][n:]; len(s.into[0]) == 0 {
				s.into = s.into[1:]
			}
		}
		if s.progress != nil {
			s.progress(s.done, s.total)
		}
		return true, nil
	})
	return err
}

// readFields reads the fields of a message of this length. It offers those of bytes to `take`, which reads the value,
// all of which is there, or returns false. It returns all others.
func readFields(reader *mem.Reader, length int, take func(field protowire.Number, length int) (bool, error)) (rest []byte, err error) {
	for end := reader.Remaining() - length; reader.Remaining() > end; {
		tag, err := binary.ReadUvarint(reader)
		if err != nil {
			return nil, err
		}
		field, kind := protowire.DecodeTag(tag)
		head, size := protowire.AppendVarint(nil, tag), uint64(0) // of what follows the head
		switch kind {
		case protowire.Fixed32Type:
			size = 4
		case protowire.Fixed64Type:
			size = 8
		default: // a number, or the length of bytes
			value, err := binary.ReadUvarint(reader)
			if err != nil {
				return nil, err
			}
			head = protowire.AppendVarint(head, value)
			if kind == protowire.BytesType {
				size = value
			}
		}
		if size > uint64(max(reader.Remaining()-end, 0)) {
			return nil, io.ErrUnexpectedEOF
		}
		if kind == protowire.BytesType {
			taken, err := take(field, int(size))
			if err != nil {
				return nil, err
			}
			if taken {
				continue
			}
		}
		rest = append(append(rest, head...), make([]byte, size)...)
		reader.Read(rest[len(rest)-int(size):])
	}
	return rest, nil
}
