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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/posenc/posenc/client/go/posencv1"
)

// ApplyRopeArgs are ApplyRope's arguments. At least one tensor is required. A tensor is [B, S, H, D] in Layout's order,
// or [T, H, D].
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
	Cache            *posencv1.CacheLayout // layout of a paged cache, instead of Layout
	Saturation       Saturation            // required if K is FP8, or Int8 without BlockFormat
	BlockFormat      BlockFormat           // format of the blocks whose bytes K holds
	K                Tensor
}

// ApplyRope rotates q, k or both. Results have the shapes and types of q and k. They are in new memory, or in the
// memory that the option Into names. Tensors over WithStreamAbove, or over the server's limit, go through a stream.
func (c *Client) ApplyRope(ctx context.Context, args ApplyRopeArgs, options ...Option) (q, k Tensor, err error) {
	if args.Rope.err != nil {
		return Tensor{}, Tensor{}, args.Rope.err
	}
	response := &posencv1.ApplyRopeResponse{}
	err = c.rotate(ctx, "ApplyRope", &posencv1.ApplyRopeRequest{
		Rope: args.Rope.message, Positions: args.Positions, Layout: args.Layout, Direction: args.Direction,
		QueryScale: args.QueryScale, Saturation: cmp.Or(optionsOf(options).saturation, args.Saturation),
	}, response, &posencv1.ApplyRopeStreamRequest{}, options, input{"q", args.Q}, input{"k", args.K})
	return Tensor{response.Q}, Tensor{response.K}, err
}

// Reposition moves rotated keys to other positions, or from one rotary encoding to another, in one rotation. Shapes,
// memory and streams are the same as those of ApplyRope.
func (c *Client) Reposition(ctx context.Context, args RepositionArgs, options ...Option) (Tensor, error) {
	if err := cmp.Or(args.OldRope.err, args.NewRope.err); err != nil {
		return Tensor{}, err
	}
	response := &posencv1.RepositionResponse{}
	err := c.rotate(ctx, "Reposition", &posencv1.RepositionRequest{
		OldRope: args.OldRope.message, NewRope: args.NewRope.message, Movement: args.Movement, Layout: args.Layout,
		Cache: args.Cache, Saturation: cmp.Or(optionsOf(options).saturation, args.Saturation),
		BlockFormat: cmp.Or(optionsOf(options).blocks, args.BlockFormat),
	}, response, &posencv1.RepositionStreamRequest{}, options, input{"k", args.K})
	return Tensor{response.K}, err
}

// streamed receives the bytes of a stream's answers: the results, one after the other.
type streamed struct {
	into        [][]byte // memory that is not filled yet
	done, total int64
	progress    func(done, total int64) // may be nil
}

// take copies the next bytes to their place. The copy does nothing if the bytes were received there.
func (s *streamed) take(data []byte) error {
	if s.done += int64(len(data)); s.done > s.total {
		return newError(codes.Internal, "the server's answer does not fit: it has more than %d bytes", s.total)
	}
	for len(data) > 0 {
		n := copy(s.into[0], data)
		data = data[n:]
		if s.into[0] = s.into[0][n:]; len(s.into[0]) == 0 {
			s.into = s.into[1:]
		}
	}
	if s.progress != nil {
		s.progress(s.done, s.total)
	}
	return nil
}

// rotate makes a call whose results have the types and shapes of its inputs. first is an empty message of the stream.
func (c *Client) rotate(ctx context.Context, method string, request, response, first proto.Message, options []Option, inputs ...input) error {
	k := &call{method: method, request: request, response: response, inputs: inputs}
	for _, in := range inputs {
		k.results = append(k.results, &result{name: in.name, want: in.tensor.m})
	}
	k.stream = func(ctx context.Context) error { return c.rotateByStream(ctx, k, first.ProtoReflect(), options) }
	return c.perform(ctx, k, options)
}

// rotateByStream sends the bytes of the inputs after their description, and at the same time receives the results.
func (c *Client) rotateByStream(ctx context.Context, k *call, first protoreflect.Message, options []Option) error {
	results := &streamed{progress: optionsOf(options).progress}
	for i, in := range k.inputs {
		if wrong := in.tensor.mismatch(in.tensor.m); wrong != "" {
			return wrongArgument(string(in.name)+".shape", "%s", wrong)
		}
		r := k.results[i]
		if r.got = r.into; !r.got.Given() && in.tensor.Given() {
			r.got = Tensor{in.tensor.described()}
			r.got.m.Data = newBytes(len(in.tensor.m.Data))
		}
		if into := slices.Clip(r.got.Bytes()); len(into) > 0 {
			results.into = append(results.into, into)
			results.total += int64(len(into))
		}
	}
	m, _, _ := k.message(false)
	described, data := unload(m)
	first.Set(first.Descriptor().Fields().ByName("call"), protoreflect.ValueOfMessage(described))
	size := c.chunkBytes
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		ctx := announce(ctx, max(proto.Size(first.Interface()), size+16)) // 16: the frame of a chunk
		err := c.exchange(ctx, service+k.method+"Stream", first, data, size, results, options)
		var e *Error
		if !errors.As(err, &e) || results.done > 0 || pause > 400*time.Millisecond {
			return err
		}
		limit, _ := strconv.Atoi(e.Metadata["limitBytes"])
		switch {
		case e.Code == codes.Unavailable:
			select {
			case <-ctx.Done():
				return err
			case <-time.After(pause):
			}
		case tooLarge(e) && limit > 24 && limit-16 < size: // the server accepts only small messages
			size = (limit - 16) &^ 7
		default:
			return err
		}
	}
}

// unload returns a message without the bytes of its tensors. It also returns these bytes in the order of the tensors'
// fields, which is their order in a stream. A tensor whose bytes do not fit its shape stays in the message, so that the
// server reports the fault.
func unload(m protoreflect.Message) (rest protoreflect.Message, data [][]byte) {
	if t, ok := m.Interface().(*posencv1.Tensor); ok {
		if len(t.Data) == 0 || sizeOf(t) != int64(len(t.Data)) {
			return m, nil
		}
		return Tensor{t}.described().ProtoReflect(), [][]byte{t.Data}
	}
	rest = shallow(m)
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		if field.Message() != nil && !field.IsList() && !field.IsMap() && m.Has(field) {
			inner, more := unload(m.Get(field).Message())
			rest.Set(field, protoreflect.ValueOfMessage(inner))
			data = append(data, more...)
		}
	}
	return rest, data
}

// neverAgain keeps gRPC from repeating a call that has sent a message. To repeat a stream, gRPC would have to keep the
// tensors. In addition, gRPC 1.80 has a race: it may lose a message that is sent at the same time as gRPC decides not
// to retry the stream.
func neverAgain() Option { return grpc.MaxRetryRPCBufferSize(0) }

// exchange sends the first message and then the data, in messages of `size` bytes, and takes the results.
func (c *Client) exchange(ctx context.Context, method string, first protoreflect.Message, data [][]byte, size int, results *streamed, options []Option) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, options...)
	if err != nil {
		return err
	}
	// The first message is sent before anything is read, so that gRPC does not repeat the stream.
	if err := s.SendMsg(first.Interface()); err != nil && err != io.EOF {
		return err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for _, bytes := range data {
			for chunk := range slices.Chunk(bytes, size) {
				m := first.New()
				m.Set(m.Descriptor().Fields().ByNumber(dataField), protoreflect.ValueOfBytes(chunk))
				if s.SendMsg(m.Interface()) != nil {
					return // RecvMsg has the error
				}
			}
		}
		s.CloseSend()
	}()
	for err == nil {
		m := &posencv1.ApplyRopeStreamResponse{} // RepositionStream's answers have the same field
		if len(results.into) > 0 {
			m.Data = results.into[0][:0]
		}
		if err = s.RecvMsg(m); err == nil {
			err = results.take(m.Data)
		}
	}
	cancel()
	<-written
	if err != io.EOF {
		return err
	}
	if results.done < results.total {
		return newError(codes.Internal, "the server's answer does not fit: it has %d of %d bytes", results.done, results.total)
	}
	return nil
}
