package posenc

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of all other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

const (
	// Field number of Tensor.data, and of `data` in a stream's messages.
	dataField = 15

	// Smaller tensors are copied, which costs less than to wait for their return.
	lendFrom = 64 << 10
)

// sentMessage is a message on the wire, in pieces: generated code would copy the tensors. Pieces from lendFrom on may
// be the caller's memory.
type sentMessage struct {
	pieces [][]byte
	loans  *loans
}

func (m *sentMessage) add(own, data []byte) {
	if len(data) < lendFrom {
		m.pieces = append(m.pieces, append(own, data...))
		return
	}
	m.pieces = append(m.pieces, own, data)
}

// appendData appends the frame of a field `data`.
func appendData(frame, data []byte) []byte {
	if len(data) == 0 {
		return frame
	}
	frame = protowire.AppendTag(frame, dataField, protowire.BytesType)
	return protowire.AppendVarint(frame, uint64(len(data)))
}

// addTensor adds a tensor as a field: its place, if it is shared, or its data.
func (m *sentMessage) addTensor(field protowire.Number, t Tensor, shared bool) {
	header, data := t.described(), t.data
	if shared {
		header.Shared, data = t.place.message(), nil
	}
	bytes, _ := proto.Marshal(header) // cannot fail: numbers, and the name of a region
	bytes = appendData(bytes, data)
	frame := protowire.AppendTag(nil, field, protowire.BytesType)
	frame = protowire.AppendVarint(frame, uint64(len(bytes)+len(data)))
	m.add(append(frame, bytes...), data)
}

func (m *sentMessage) size() (size int64) {
	for _, piece := range m.pieces {
		size += int64(len(piece))
	}
	return size
}

func (m *sentMessage) marshal() (slice mem.BufferSlice) {
	for _, piece := range m.pieces {
		if len(piece) < lendFrom {
			slice = append(slice, mem.SliceBuffer(piece))
		} else {
			slice = append(slice, m.loans.lend(piece))
		}
	}
	return slice
}

// loans counts the memory that a call has lent to its connection. It is a buffer pool: gRPC gives a buffer back to its
// pool with the last reference.
type loans struct{ sync.WaitGroup }

func (l *loans) lend(memory []byte) mem.Buffer {
	l.Add(1)
	return mem.NewBuffer(&memory, l)
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

// codec adds messages with tensors to gRPC's own codec. On the wire they are plain protobuf.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if m, ok := message.(*sentMessage); ok {
		return m.marshal(), nil
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

// receivedMessage is a message whose tensors are copied from the received bytes directly to the memory for results.
type receivedMessage struct {
	body    proto.Message // gets all other fields
	results []*result
}

func (m *receivedMessage) unmarshal(reader *mem.Reader) error {
	rest, err := readFields(reader, reader.Remaining(), func(field protowire.Number, length int) (bool, error) {
		for _, r := range m.results {
			if r.field == field {
				return true, r.read(reader, length)
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	return proto.Unmarshal(rest, m.body)
}

// read reads a tensor of this length. Only check finds that its data does not fit the caller's memory.
func (r *result) read(reader *mem.Reader, length int) error {
	var data []byte
	rest, err := readFields(reader, length, func(field protowire.Number, length int) (bool, error) {
		if field != dataField {
			return false, nil
		}
		if data = r.into.data; len(data) != length {
			data = newBytes(length)
		}
		_, err := io.ReadFull(reader, data)
		return true, err
	})
	var header posencv1.Tensor
	if err == nil {
		err = proto.Unmarshal(rest, &header)
	}
	if header.GetShared() != nil {
		data = r.into.data
	}
	r.got = Tensor{dtype: header.GetDtype(), shape: header.GetShape(), data: data, given: true, place: r.into.place}
	return err
}

// readFields reads the fields of a message of this length. It offers those of bytes to `take`, which reads the value or
// returns false, and returns all others.
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
		case protowire.VarintType, protowire.BytesType:
			value, err := binary.ReadUvarint(reader)
			if err != nil {
				return nil, err
			}
			head = protowire.AppendVarint(head, value)
			if kind == protowire.BytesType {
				size = value
			}
		default:
			return nil, fmt.Errorf("field %d has wire type %d", field, kind)
		}
		if size > uint64(max(reader.Remaining()-end, 0)) {
			return nil, io.ErrUnexpectedEOF
		}
		if kind == protowire.BytesType {
			if taken, err := take(field, int(size)); err != nil {
				return nil, err
			} else if taken {
				continue
			}
		}
		rest = append(append(rest, head...), make([]byte, size)...)
		if _, err := io.ReadFull(reader, rest[len(rest)-int(size):]); err != nil {
			return nil, err
		}
	}
	return rest, nil
}
