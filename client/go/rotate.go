package posenc

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

// ApplyRopeArgs are ApplyRope's arguments. Tensors are [B, S, H, D] in the
// order of Layout, or [T, H, D]; at least one is required.
type ApplyRopeArgs struct {
	Rope       RopeSource
	Positions  *Positions
	Layout     Layout
	Direction  posencv1.Direction
	QueryScale *posencv1.QueryScale
	Saturation Saturation // required if Q or K is FP8
	Q, K       Tensor
}

// RepositionArgs are Reposition's arguments. A zero NewRope means OldRope.
type RepositionArgs struct {
	OldRope, NewRope RopeSource
	Movement         *Movement
	Layout           Layout
	Saturation       Saturation // required if K is FP8
	K                Tensor
}

// ApplyRope rotates q, k or both. Results have their shapes and types, in new
// memory or in the memory of the option Into. Tensors over WithStreamAbove, or
// over the server's limit, go through a stream.
func (c *Client) ApplyRope(ctx context.Context, args ApplyRopeArgs, options ...Option) (q, k Tensor, err error) {
	if args.Rope.err != nil {
		return Tensor{}, Tensor{}, args.Rope.err
	}
	o := optionsOf(options)
	request := &posencv1.ApplyRopeRequest{
		Rope: args.Rope.message, Positions: args.Positions, Layout: args.Layout, Direction: args.Direction,
		QueryScale: args.QueryScale, Saturation: cmp.Or(o.saturation, args.Saturation),
	}
	describe := func() (first proto.Message, ids [][]byte) {
		request.Positions = describePositions(request.Positions, &ids)
		request.Q, request.K = args.Q.described(), args.K.described()
		return &posencv1.ApplyRopeStreamRequest{Call: request}, ids
	}
	results, err := c.rotate(ctx, "ApplyRope", request, &posencv1.ApplyRopeResponse{}, o, describe,
		input{14, args.Q}, input{15, args.K})
	return results[0], results[1], err
}

// Reposition moves rotated keys to other positions, or from one rotary encoding
// to another, in one rotation. Shapes, memory and streams are as in ApplyRope.
func (c *Client) Reposition(ctx context.Context, args RepositionArgs, options ...Option) (Tensor, error) {
	if err := cmp.Or(args.OldRope.err, args.NewRope.err); err != nil {
		return Tensor{}, err
	}
	o := optionsOf(options)
	request := &posencv1.RepositionRequest{
		OldRope: args.OldRope.message, NewRope: args.NewRope.message, Movement: args.Movement,
		Layout: args.Layout, Saturation: cmp.Or(o.saturation, args.Saturation),
	}
	describe := func() (first proto.Message, ids [][]byte) {
		request.Movement = describeMovement(request.Movement, &ids)
		request.K = args.K.described()
		return &posencv1.RepositionStreamRequest{Call: request}, ids
	}
	results, err := c.rotate(ctx, "Reposition", request, &posencv1.RepositionResponse{}, o, describe, input{15, args.K})
	return results[0], err
}

// rotate makes a call whose results are like its inputs. describe returns the
// first message of its stream, and ids that are not in there.
func (c *Client) rotate(ctx context.Context, method string, request, response proto.Message, o *callOptions,
	describe func() (first proto.Message, ids [][]byte), inputs ...input) ([]Tensor, error) {
	k := &call{method: method, request: request, response: response, inputs: inputs}
	for _, in := range inputs {
		k.results = append(k.results, likeInput(k.name(in), in.field, in.tensor))
	}
	// A smaller message would only be refused again.
	if k.bytes(false) > min(c.streamAbove, int64(c.chunkBytes)) {
		k.stream = func(ctx context.Context) error {
			first, ids := describe()
			return c.rotateStream(ctx, k, first, ids, o.progress)
		}
	}
	return c.perform(ctx, k, o)
}

// described returns the tensor without elements.
func (t Tensor) described() *posencv1.Tensor {
	if !t.given {
		return nil
	}
	return &posencv1.Tensor{Dtype: t.dtype, Shape: t.shape}
}

// describeIDs moves the elements of many ids, or shifts, to `elements`. It leaves
// wrong ones for the server to report.
func describeIDs(ids *posencv1.Tensor, elements *[][]byte) *posencv1.Tensor {
	t := tensorOf(ids)
	if len(t.data) < lendFrom || sizeOf(t.dtype, t.shape) != int64(len(t.data)) {
		return ids
	}
	*elements = append(*elements, t.data)
	return t.described()
}

func describePositions(positions *Positions, elements *[][]byte) *Positions {
	if ids := positions.GetIds(); ids != nil {
		return &Positions{Kind: &posencv1.Positions_Ids{Ids: describeIDs(ids, elements)}}
	}
	return positions
}

func describeMovement(movement *Movement, elements *[][]byte) *Movement {
	described := &Movement{OldPositions: describePositions(movement.GetOldPositions(), elements), Target: movement.GetTarget()}
	switch target := movement.GetTarget().(type) {
	case *posencv1.Movement_NewPositions:
		described.Target = &posencv1.Movement_NewPositions{NewPositions: describePositions(target.NewPositions, elements)}
	case *posencv1.Movement_Shifts:
		described.Target = &posencv1.Movement_Shifts{Shifts: describeIDs(target.Shifts, elements)}
	}
	return described
}

// rotateStream sends the bytes of ids and inputs after the first message, and at
// the same time receives those of the results.
func (c *Client) rotateStream(ctx context.Context, k *call, first proto.Message, ids [][]byte, progress func(done, total int64)) error {
	sent, answer := ids, &receivedBytes{}
	for i, in := range k.inputs {
		if !in.tensor.given {
			continue
		}
		if size := sizeOf(in.tensor.dtype, in.tensor.shape); size != int64(len(in.tensor.data)) {
			return wrongArgument(k.name(in)+".shape", "%v of %v does not have %d bytes", in.tensor.shape, in.tensor.dtype, len(in.tensor.data))
		}
		r := k.results[i]
		r.got = in.tensor
		r.got.data, r.got.place = r.into.data, r.into.place
		if !r.into.given {
			r.got.data = newBytes(len(in.tensor.data))
		}
		sent, answer.into = append(sent, in.tensor.data), append(answer.into, r.got.data)
		answer.total += int64(len(r.got.data))
	}
	largest := max(proto.Size(first), c.chunkBytes+16) // 16: the frame of a chunk
	ctx = metadata.AppendToOutgoingContext(ctx, messageBytesKey, strconv.Itoa(largest))
	conn := c.connection(bulkFrom)
	conn.calls.Add(1)
	defer conn.calls.Add(-1)
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		err := c.exchange(ctx, conn, k.method, first, sent, answer, progress)
		if status.Code(err) != codes.Unavailable || answer.done > 0 || pause > 400*time.Millisecond {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// once makes gRPC try no call again that has got a connection. For streams it
// would have to keep the tensors, and 1.80 may lose a message that it sends while
// it stops that.
func once() grpc.CallOption { return grpc.MaxRetryRPCBufferSize(-1) }

func (c *Client) exchange(ctx context.Context, conn *connection, method string, first proto.Message, sent [][]byte, answer *receivedBytes, progress func(done, total int64)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	s, err := conn.NewStream(ctx, desc, service+method+"Stream", once())
	if err != nil {
		return err
	}
	lent, sending := &loans{}, make(chan error, 1)
	go func() { sending <- c.write(s, first, sent, lent) }()
	for err == nil {
		if err = s.RecvMsg(answer); err == nil && progress != nil {
			progress(answer.done, answer.total)
		}
	}
	cancel() // ends the writer, too
	if failed := <-sending; failed != nil && failed != io.EOF {
		err = failed
	}
	lent.recall(c.stuckTimeout)
	if err == io.EOF && answer.done < answer.total {
		return newError(codes.Internal, "the server's answer does not fit: it has %d of %d bytes", answer.done, answer.total)
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// write returns io.EOF if the stream has ended.
func (c *Client) write(s grpc.ClientStream, first proto.Message, sent [][]byte, lent *loans) error {
	if err := s.SendMsg(first); err != nil {
		return err
	}
	for _, bytes := range sent {
		for chunk := range slices.Chunk(bytes, c.chunkBytes) {
			m := &sentMessage{loans: lent}
			m.add(appendData(nil, chunk), chunk)
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	}
	return s.CloseSend()
}

// receivedBytes copies the `data` of a stream's answers to the results, one after
// the other.
type receivedBytes struct {
	into        [][]byte // what is not filled yet
	done, total int64
}

func (m *receivedBytes) unmarshal(reader *mem.Reader) error {
	_, err := readFields(reader, reader.Remaining(), func(field protowire.Number, length int) (bool, error) {
		if field != dataField {
			return false, nil
		}
		if int64(length) > m.total-m.done {
			return false, errors.New("the server's answer does not fit: it has too many bytes")
		}
		m.done += int64(length)
		for length > 0 {
			n, err := io.ReadFull(reader, m.into[0][:min(length, len(m.into[0]))])
			if err != nil {
				return false, err
			}
			length -= n
			if m.into[0] = m.into[0][n:]; len(m.into[0]) == 0 {
				m.into = m.into[1:]
			}
		}
		return true, nil
	})
	return err
}
