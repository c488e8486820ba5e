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

// Field number of Tensor.data, and of `data` in a stream's messages.
const dataField = 15

// Smaller tensors are copied, which costs less than to wait for their return.
const lendFrom = 64 << 10

// sentMessage is a message on the wire, in pieces: generated code would copy the
// tensors.
type sentMessage struct {
	pieces []piece
	loans  *loans
}

// piece is bytes of the message's own, and the caller's bytes after them.
type piece struct{ own, lent []byte }

func (m *sentMessage) add(own, data []byte) {
	if len(data) < lendFrom {
		own, data = append(own, data...), nil
	}
	m.pieces = append(m.pieces, piece{own, data})
}

// appendData appends the frame of a field `data`, which follows.
func appendData(frame, data []byte) []byte {
	if len(data) == 0 {
		return frame
	}
	frame = protowire.AppendTag(frame, dataField, protowire.BytesType)
	return protowire.AppendVarint(frame, uint64(len(data)))
}

// addTensor adds a tensor as a field of the message: its place, if it is shared,
// or its data.
func (m *sentMessage) addTensor(field protowire.Number, t Tensor, shared bool) {
	header, data := &posencv1.Tensor{Dtype: t.dtype, Shape: t.shape}, t.data
	if shared {
		header.Shared, data = t.place.message(), nil
	}
	bytes, _ := proto.Marshal(header) // numbers, and a checked name
	bytes = appendData(bytes, data)
	frame := protowire.AppendTag(nil, field, protowire.BytesType)
	frame = protowire.AppendVarint(frame, uint64(len(bytes)+len(data)))
	m.add(append(frame, bytes...), data)
}

func (m *sentMessage) size() int64 {
	size := 0
	for _, p := range m.pieces {
		size += len(p.own) + len(p.lent)
	}
	return int64(size)
}

func (m *sentMessage) marshal() mem.BufferSlice {
	var slice mem.BufferSlice
	for _, p := range m.pieces {
		slice = append(slice, mem.SliceBuffer(p.own))
		if len(p.lent) > 0 {
			slice = append(slice, m.loans.lend(p.lent))
		}
	}
	return slice
}

// loans counts the memory that a call has lent to its connection. It is a
// buffer pool: gRPC gives a buffer back to its pool with the last reference.
type loans struct{ sync.WaitGroup }

func (l *loans) lend(memory []byte) mem.Buffer {
	l.Add(1)
	return mem.NewBuffer(&memory, l)
}

// Get is part of mem.BufferPool. It is never called.
func (l *loans) Get(length int) *[]byte {
	memory := make([]byte, length)
	return &memory
}

// Put is part of mem.BufferPool.
func (l *loans) Put(*[]byte) { l.Done() }

// recall waits until all memory has come back, so that the caller may change the
// tensors. gRPC (1.80) does not give back what an ended connection was sending.
// So the wait ends, too, when a connection that is stuck has ended for sure.
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

// codec adds messages with tensors to gRPC's own codec. On the wire they are
// plain protobuf.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

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

// receivedMessage is a message whose tensors are copied from the received bytes
// directly to the memory for results.
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

// read reads a tensor, which has this length.
func (r *result) read(reader *mem.Reader, length int) error {
	var data []byte
	rest, err := readFields(reader, length, func(field protowire.Number, length int) (bool, error) {
		if field != dataField {
			return false, nil
		}
		data = r.into.data
		if !r.into.given || len(data) != length { // a misfit is found by check
			data = newBytes(length)
		}
		_, err := io.ReadFull(reader, data)
		return true, err
	})
	if err != nil {
		return err
	}
	var header posencv1.Tensor
	if err := proto.Unmarshal(rest, &header); err != nil {
		return err
	}
	r.got = Tensor{dtype: header.GetDtype(), shape: header.GetShape(), data: data, given: true, place: r.into.place}
	if header.GetShared() != nil {
		r.got.data = r.into.data
	}
	return nil
}

// readFields reads the fields of a message of this length. It offers those of
// bytes to `take`, which reads their value or returns false, and returns all
// others.
func readFields(reader *mem.Reader, length int, take func(field protowire.Number, length int) (bool, error)) (rest []byte, err error) {
	for end := reader.Remaining() - length; reader.Remaining() > end; {
		tag, err := binary.ReadUvarint(reader)
		if err != nil {
			return nil, err
		}
		field, kind := protowire.DecodeTag(tag)
		head := protowire.AppendVarint(nil, tag)
		value, bytes, taken := uint64(0), uint64(0), false // bytes follow the value
		switch kind {
		case protowire.VarintType:
			value, err = binary.ReadUvarint(reader)
			head = protowire.AppendVarint(head, value)
		case protowire.Fixed32Type:
			bytes = 4
		case protowire.Fixed64Type:
			bytes = 8
		case protowire.BytesType:
			if bytes, err = binary.ReadUvarint(reader); err == nil && bytes > uint64(max(reader.Remaining()-end, 0)) {
				err = io.ErrUnexpectedEOF
			}
			if err == nil {
				taken, err = take(field, int(bytes))
			}
			head = protowire.AppendVarint(head, bytes)
		default:
			err = fmt.Errorf("field %d has wire type %d", field, kind)
		}
		if err != nil {
			return nil, err
		}
		if taken {
			continue
		}
		rest = append(append(rest, head...), make([]byte, bytes)...)
		if _, err := io.ReadFull(reader, rest[len(rest)-int(bytes):]); err != nil {
			return nil, err
		}
	}
	return rest, nil
}
