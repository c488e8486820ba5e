package posenc

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

const service = "/posenc.v1.PositionalEncodingService/"

// Field numbers of ApplyRope's and Reposition's tensors, in all their messages.
const (
	qField = 14
	kField = 15
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
// over the server's limit, go through a stream in chunks.
func (c *Client) ApplyRope(ctx context.Context, args ApplyRopeArgs, options ...Option) (q, k Tensor, err error) {
	if args.Rope.err != nil {
		return Tensor{}, Tensor{}, args.Rope.err
	}
	o := collect(options)
	if o.saturation != 0 {
		args.Saturation = o.saturation
	}
	request := func(positions *Positions) proto.Message {
		return &posencv1.ApplyRopeRequest{
			Rope: args.Rope.message, Positions: positions, Layout: args.Layout,
			Direction: args.Direction, QueryScale: args.QueryScale, Saturation: args.Saturation,
		}
	}
	results, err := c.rotate(ctx, &rotation{
		method:   "ApplyRope",
		layout:   args.Layout,
		rope:     args.Rope,
		byHead:   byHead(args.Rope),
		settings: func() proto.Message { return request(nil) },
		whole:    func() proto.Message { return request(args.Positions) },
		places: func(p *part, several bool) (proto.Message, error) {
			positions, err := cutPositions(args.Positions, args.Layout, several, p)
			return &posencv1.ApplyRopeRequest{Positions: positions}, err
		},
		response: func() proto.Message { return &posencv1.ApplyRopeResponse{} },
		needAxes: func(e headExtents) bool { return needAxes(args.Layout, e, args.Positions.GetIds()) },
		tensors:  []rotated{{"q", qField, args.Q}, {"k", kField, args.K}},
	}, o)
	if err != nil {
		return Tensor{}, Tensor{}, err
	}
	return results[0], results[1], nil
}

// Reposition moves rotated keys to other positions, or from one rotary encoding
// to another, in one rotation. Shapes, memory and streams are as in ApplyRope.
func (c *Client) Reposition(ctx context.Context, args RepositionArgs, options ...Option) (Tensor, error) {
	for _, rope := range []RopeSource{args.OldRope, args.NewRope} {
		if rope.err != nil {
			return Tensor{}, rope.err
		}
	}
	o := collect(options)
	if o.saturation != 0 {
		args.Saturation = o.saturation
	}
	request := func(movement *Movement) proto.Message {
		return &posencv1.RepositionRequest{
			OldRope: args.OldRope.message, NewRope: args.NewRope.message,
			Movement: movement, Layout: args.Layout, Saturation: args.Saturation,
		}
	}
	moved := args.Movement
	results, err := c.rotate(ctx, &rotation{
		method:   "Reposition",
		layout:   args.Layout,
		rope:     args.OldRope,
		byHead:   byHead(args.OldRope) || byHead(args.NewRope),
		settings: func() proto.Message { return request(nil) },
		whole:    func() proto.Message { return request(args.Movement) },
		places: func(p *part, several bool) (proto.Message, error) {
			movement, err := cutMovement(args.Movement, args.Layout, several, p)
			return &posencv1.RepositionRequest{Movement: movement}, err
		},
		response: func() proto.Message { return &posencv1.RepositionResponse{} },
		needAxes: func(e headExtents) bool {
			return needAxes(args.Layout, e, moved.GetOldPositions().GetIds(),
				moved.GetNewPositions().GetIds(), moved.GetShifts())
		},
		tensors: []rotated{{"k", kField, args.K}},
	}, o)
	if err != nil {
		return Tensor{}, err
	}
	return results[0], nil
}

// byHead returns whether heads have different frequencies, so that a part of a
// tensor must have all heads.
func byHead(rope RopeSource) bool {
	return rope.message.GetSpec().GetExplicitFrequencies().GetHeads() > 0
}

// rotation is a call of ApplyRope or Reposition.
type rotation struct {
	method string
	layout Layout
	rope   RopeSource
	byHead bool
	// A stream's messages have the same field numbers as the single message, so
	// its types serve for both. These are without tensors.
	settings func() proto.Message                               // a stream's first message
	whole    func() proto.Message                               // settings and positions
	places   func(p *part, several bool) (proto.Message, error) // the positions of a part
	response func() proto.Message
	needAxes func(headExtents) bool
	tensors  []rotated
}

// rotated is one of a rotation's tensors.
type rotated struct {
	name   string
	field  protowire.Number
	tensor Tensor
}

// rotate makes the call in one message, or if that is too large in chunks.
func (c *Client) rotate(ctx context.Context, r *rotation, o *callOptions) ([]Tensor, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	ctx = o.with(ctx)
	if err := o.unused(r.names(), func(i int) bool { return r.tensors[i].tensor.given }); err != nil {
		return nil, err
	}
	bytes := int64(0)
	for i, t := range r.tensors {
		if err := checkOpen(t.name, t.tensor); err != nil {
			return nil, err
		}
		bytes += int64(len(t.tensor.data))
		if err := o.misfit(i, likeInput(t.name, t.tensor)); err != nil {
			return nil, err
		}
	}
	if s := r.sharing(o); s.any && s.rest <= c.options.streamAboveBytes {
		results, err := c.rotateAtOnce(ctx, r, o, &s)
		if err == nil {
			return results, nil
		}
		if told, again := s.failed(err); !again {
			return nil, told
		}
	}
	if bytes > 0 && bytes > c.options.streamAboveBytes {
		return c.rotateInChunks(ctx, r, o)
	}
	results, err := c.rotateAtOnce(ctx, r, o, nil)
	// The server's limit may be lower than ours. A message no larger than a chunk
	// would only be refused again.
	if tooLarge(err) {
		if size, asked := c.chunkBytes(ctx); asked == nil && bytes > size {
			return c.rotateInChunks(ctx, r, o)
		}
	}
	return results, err
}

func (r *rotation) names() []string {
	var names []string
	for _, t := range r.tensors {
		names = append(names, t.name)
	}
	return names
}

func (r *rotation) sharing(o *callOptions) sharing {
	var inputs []Tensor
	for _, t := range r.tensors {
		inputs = append(inputs, t.tensor)
	}
	return sharingOf(r.names(), inputs, o.outputs)
}

// rotateAtOnce sends all bytes if shared is nil.
func (c *Client) rotateAtOnce(ctx context.Context, r *rotation, o *callOptions, shared *sharing) ([]Tensor, error) {
	request := &sentMessage{body: r.whole(), once: shared != nil && len(shared.inPlace) > 0}
	response := &receivedMessage{body: r.response()}
	for i, t := range r.tensors {
		if t.tensor.given {
			request.tensors = append(request.tensors, sentTensor{t.field, t.tensor, shared != nil && t.tensor.place != nil})
		}
		into := o.receive(i, t.name, t.field, shared != nil)
		if into.shared {
			setOutput(request.body, t.name, into.place)
		}
		response.tensors = append(response.tensors, into)
	}
	if err := c.channel.Invoke(ctx, service+r.method, request, response); err != nil {
		return nil, err
	}
	for i, t := range r.tensors {
		if !t.tensor.given {
			continue
		}
		if err := response.tensors[i].check(likeInput(t.name, t.tensor)); err != nil {
			return nil, err
		}
	}
	return response.results(), nil
}

func (m *receivedMessage) results() []Tensor {
	results := make([]Tensor, len(m.tensors))
	for i, t := range m.tensors {
		results[i] = t.tensor
	}
	return results
}

// chunk is one message of a stream: a part of one of the tensors.
type chunk struct {
	rotated rotated
	part    part
	into    []byte
}

// Bytes of a chunk's message beside tensor and positions: tags, lengths, shapes.
const framingBytes = 256

// plan cuts the tensors, each separately and in order: q and k may have
// different numbers of heads, so equal amounts of memory hold different tokens.
func (c *Client) plan(ctx context.Context, r *rotation, o *callOptions) (chunks []chunk, results []Tensor, several bool, err error) {
	size, err := c.chunkBytes(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	need := false
	for i, t := range r.tensors {
		if !t.tensor.given {
			results = append(results, Tensor{})
			continue
		}
		result := t.tensor
		if result.data, result.place = o.output(i), nil; result.data == nil {
			result.data = newBytes(len(t.tensor.data))
		} else {
			result.place = o.outputs[i].place
		}
		results = append(results, result)
		parts, err := cutTensor(t.name, t.tensor, r.layout, r.byHead, size)
		if err != nil {
			return nil, nil, false, err
		}
		for _, p := range parts {
			if p.bytes > c.options.maxMessageBytes {
				return nil, nil, false, newError(codes.ResourceExhausted,
					"%s: %d bytes cannot be cut into smaller messages; the limit is %d",
					t.name, p.bytes, c.options.maxMessageBytes)
			}
			need = need || r.needAxes(p.extents)
			chunks = append(chunks, chunk{t, p, result.data[p.offset : p.offset+p.bytes]})
		}
	}
	if need {
		several, err = c.severalAxes(ctx, r.rope)
	}
	return chunks, results, several, err
}

func (c *Client) severalAxes(ctx context.Context, rope RopeSource) (bool, error) {
	if spec := rope.message.GetSpec(); spec != nil {
		return severalAxes(spec), nil
	}
	answer, err := c.stub.ResolveRope(ctx, &posencv1.ResolveRopeRequest{Rope: rope.message})
	return severalAxes(answer.GetSpec()), err
}

func (c *Client) rotateInChunks(ctx context.Context, r *rotation, o *callOptions) ([]Tensor, error) {
	chunks, results, several, err := c.plan(ctx, r, o)
	if err != nil {
		return nil, err
	}
	// Positions are cut twice, which is cheap. The first time gives the size of
	// the largest message, to announce it, and checks that positions fit the
	// tensors before anything is sent.
	largest, total := int64(proto.Size(r.settings())), int64(0)
	for i := range chunks {
		body, err := r.places(&chunks[i].part, several)
		if err != nil {
			return nil, err
		}
		largest = max(largest, chunks[i].part.bytes+int64(proto.Size(body))+framingBytes)
		total += chunks[i].part.bytes
	}
	ctx, cancel := context.WithCancel(announce(ctx, largest))
	defer cancel()
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	s, err := c.channel.open(ctx, desc, service+r.method+"Stream")
	if err != nil {
		return nil, err
	}
	if err := r.begin(s); err != nil {
		return nil, err
	}
	lent := newLoans()
	sent := make(chan error, 1)
	var count atomic.Int64
	go func() { sent <- r.send(s, chunks, several, lent, &count) }()
	err = r.receive(s, chunks, total, &count, o.progress)
	if err != nil {
		cancel() // ends the sender too
	}
	if failed := <-sent; failed != nil && failed != io.EOF {
		err = failed
	}
	c.channel.recall(lent, s.conn)
	if err != nil {
		return nil, err
	}
	return results, nil
}

// begin sends the settings and waits for the empty answer, which shows that they
// are valid. After it gRPC keeps no messages for a retry. If that changed while a
// chunk is being sent, gRPC (1.80: bufferForRetryLocked) would never give the
// chunk's memory back.
func (r *rotation) begin(s *stream) error {
	if err := s.SendMsg(r.settings()); err != nil && err != io.EOF {
		return err
	}
	err := s.RecvMsg(r.response())
	if err == io.EOF {
		err = s.end(newError(codes.Internal, "the stream ended without a response"))
	}
	return err
}

func (r *rotation) send(s *stream, chunks []chunk, several bool, lent *loans, count *atomic.Int64) error {
	for i := range chunks {
		body, err := r.places(&chunks[i].part, several)
		if err != nil {
			s.end(err)
			return err
		}
		tensor := chunks[i].rotated.tensor
		p := &chunks[i].part
		tensor.shape, tensor.data = p.shape, tensor.data[p.offset:p.offset+p.bytes]
		message := &sentMessage{body: body, loans: lent,
			tensors: []sentTensor{{field: chunks[i].rotated.field, tensor: tensor}}}
		count.Add(1)
		// Waits while the server does not read: it reads ahead by a few messages.
		if err := s.SendMsg(message); err != nil {
			return err
		}
	}
	return s.CloseSend()
}

// receive reads the answers: one for each chunk, in order.
func (r *rotation) receive(s *stream, chunks []chunk, total int64, sent *atomic.Int64, progress func(done, total int64)) error {
	done := int64(0)
	for i := range chunks {
		tensor := &receivedTensor{field: chunks[i].rotated.field, into: chunks[i].into}
		err := s.RecvMsg(&receivedMessage{body: r.response(), tensors: []*receivedTensor{tensor}})
		if err == io.EOF {
			return s.end(newError(codes.Internal, "the stream ended after %d of %d responses", i, len(chunks)))
		}
		if err != nil {
			return err
		}
		if int64(i) >= sent.Load() {
			return s.end(newError(codes.Internal, "response %d does not belong to its request", i))
		}
		of := &chunks[i].rotated
		if err := tensor.check(result{of.name, of.tensor.dtype, chunks[i].part.shape, -1}); err != nil {
			return s.end(err)
		}
		done += chunks[i].part.bytes
		if progress != nil {
			progress(done, total)
		}
	}
	if err := s.RecvMsg(&receivedMessage{body: r.response()}); err != io.EOF {
		if err == nil {
			err = s.end(newError(codes.Internal, "more responses than requests"))
		}
		return err
	}
	return nil
}

// chunkSize is the server's recommendation, after the first request for it.
type chunkSize struct{ known atomic.Int64 }

// Default size of a chunk: with framing, an answer stays below 4 MiB, the
// default limit of most gRPC clients.
const chunkBytes = 4<<20 - 64<<10

// Bytes that a message may have beside a chunk: settings, positions, framing.
const messageOverhead = 64 << 10

// chunkBytes fails only if the deadline passes: the stream would wait for as long
// again.
func (c *Client) chunkBytes(ctx context.Context) (int64, error) {
	if known := c.chunk.known.Load(); known > 0 {
		return known, nil
	}
	info, err := c.stub.GetServerInfo(ctx, &posencv1.GetServerInfoRequest{})
	if status.Code(err) == codes.DeadlineExceeded {
		return 0, err
	}
	bytes := info.GetLimits().GetStreamChunkBytes()
	if bytes <= 0 {
		bytes = chunkBytes
	}
	limits := []int64{c.options.maxMessageBytes, info.GetLimits().GetMaxRequestBytes(), info.GetLimits().GetMaxResponseBytes()}
	for _, limit := range limits {
		if limit > 0 {
			bytes = max(min(bytes, limit-messageOverhead), 1)
		}
	}
	// A server that does not answer now may answer the next call.
	if err == nil {
		c.chunk.known.Store(bytes)
	}
	return bytes, nil
}

// text of a shape for errors.
func shapeText(shape []int64) string { return fmt.Sprint(shape) }
