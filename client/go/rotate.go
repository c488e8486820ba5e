package posenc

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

// ApplyRopeArgs are ApplyRope's arguments. Tensors are [B, S, H, D] in the order of Layout, or [T, H, D]; at least one
// is required.
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

// ApplyRope rotates q, k or both. Results have their shapes and types, in new memory or in the memory of the option
// Into. Tensors over WithStreamAbove, or over the server's limit, go through a stream.
func (c *Client) ApplyRope(ctx context.Context, args ApplyRopeArgs, options ...Option) (q, k Tensor, err error) {
	if args.Rope.err != nil {
		return Tensor{}, Tensor{}, args.Rope.err
	}
	o := optionsOf(options)
	request := &posencv1.ApplyRopeRequest{
		Rope: args.Rope.message, Positions: args.Positions, Layout: args.Layout, Direction: args.Direction,
		QueryScale: args.QueryScale, Saturation: cmp.Or(o.saturation, args.Saturation),
	}
	first := func() proto.Message {
		request.Q, request.K = args.Q.described(), args.K.described()
		return &posencv1.ApplyRopeStreamRequest{Call: request}
	}
	results, err := c.rotate(ctx, first, o, &call{
		method: "ApplyRope", request: request, response: &posencv1.ApplyRopeResponse{},
		inputs: []input{{"q", 14, args.Q}, {"k", 15, args.K}},
	})
	return results[0], results[1], err
}

// Reposition moves rotated keys to other positions, or from one rotary encoding to another, in one rotation. Shapes,
// memory and streams are as in ApplyRope.
func (c *Client) Reposition(ctx context.Context, args RepositionArgs, options ...Option) (Tensor, error) {
	if err := cmp.Or(args.OldRope.err, args.NewRope.err); err != nil {
		return Tensor{}, err
	}
	o := optionsOf(options)
	request := &posencv1.RepositionRequest{
		OldRope: args.OldRope.message, NewRope: args.NewRope.message, Movement: args.Movement,
		Layout: args.Layout, Saturation: cmp.Or(o.saturation, args.Saturation),
	}
	first := func() proto.Message {
		request.K = args.K.described()
		return &posencv1.RepositionStreamRequest{Call: request}
	}
	results, err := c.rotate(ctx, first, o, &call{
		method: "Reposition", request: request, response: &posencv1.RepositionResponse{}, inputs: []input{{"k", 15, args.K}},
	})
	return results[0], err
}

// rotate makes a call whose results are like its inputs. first returns the first message of its stream.
func (c *Client) rotate(ctx context.Context, first func() proto.Message, o *callOptions, k *call) ([]Tensor, error) {
	bytes := 0
	for _, in := range k.inputs {
		k.results = append(k.results, &result{name: in.name, field: in.field, want: in.tensor})
		bytes += len(in.tensor.data)
	}
	// A smaller message would only be refused again.
	if int64(bytes) > min(c.streamAbove, int64(c.chunkBytes)) {
		k.stream = func(ctx context.Context) error { return c.rotateByStream(ctx, k, first(), o.progress) }
	}
	return c.perform(ctx, k, o)
}

// rotateByStream sends the bytes of the inputs after the first message, and at the same time receives the results.
func (c *Client) rotateByStream(ctx context.Context, k *call, first proto.Message, progress func(done, total int64)) error {
	answer := &receivedBytes{}
	for i, in := range k.inputs {
		r := k.results[i]
		if wrong := in.tensor.mismatch(in.tensor); wrong != "" {
			return wrongArgument(in.name+".shape", "%s", wrong)
		}
		if r.got = in.tensor; r.into.given {
			r.got = r.into
		} else if in.tensor.given {
			r.got.data, r.got.place = newBytes(len(in.tensor.data)), nil
		}
		answer.into = append(answer.into, r.got.data)
		answer.total += int64(len(r.got.data))
	}
	ctx = announce(ctx, max(proto.Size(first), c.chunkBytes+16)) // 16: the frame of a chunk
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		s, err := c.connection(bulkFrom).NewStream(ctx, desc, service+k.method+"Stream", neverAgain())
		if err != nil {
			return err
		}
		err = c.exchange(s, first, k.inputs, answer, progress)
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

// neverAgain makes gRPC repeat no call that has sent a message. To repeat a stream it would have to keep the tensors,
// and 1.80 may lose a message that it sends while it decides not to.
func neverAgain() grpc.CallOption { return grpc.MaxRetryRPCBufferSize(0) }

func (c *Client) exchange(s grpc.ClientStream, first proto.Message, inputs []input, answer *receivedBytes, progress func(done, total int64)) error {
	// Before anything is read, so that gRPC does not repeat it.
	if err := s.SendMsg(first); err != nil && err != io.EOF {
		return err
	}
	lent, written := &loans{}, make(chan error, 1)
	go func() { written <- c.write(s, inputs, lent) }()
	var err error
	for err == nil {
		if err = s.RecvMsg(answer); err == nil && progress != nil {
			progress(answer.done, answer.total)
		}
	}
	// The stream has ended, and so does the writer.
	if failed := <-written; failed != nil && failed != io.EOF {
		err = failed
	}
	lent.recall(c.stuckTimeout)
	if err != io.EOF {
		return err
	}
	if answer.done < answer.total {
		return newError(codes.Internal, "the server's answer does not fit: it has %d of %d bytes", answer.done, answer.total)
	}
	return nil
}

// write returns io.EOF if the stream has ended.
func (c *Client) write(s grpc.ClientStream, inputs []input, lent *loans) error {
	for _, in := range inputs {
		for chunk := range slices.Chunk(in.tensor.data, c.chunkBytes) {
			m := &sentMessage{loans: lent}
			m.add(appendData(nil, chunk), chunk)
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	}
	return s.CloseSend()
}

// receivedBytes copies the `data` of a stream's answers to the results, one after the other.
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
