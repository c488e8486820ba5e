package posenc

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/posenc/posenc/client/go/posencv1"
)

const (
	service = "/posenc.v1.PositionalEncodingService/"

	requestIDKey    = "x-request-id"
	traceparentKey  = "traceparent"
	messageBytesKey = "posenc-message-bytes"

	// Deadline of a stream that is limited only by its progress. Without a deadline, the server would set its own
	// deadline.
	longestStream = 24 * time.Hour
)

// begin adds request id and traceparent to the context of a call, and returns the context and the request id.
func begin(ctx context.Context, options []Option) (context.Context, string) {
	o := optionsOf(options)
	if o.traceparent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, traceparentKey, o.traceparent)
	}
	set, _ := metadata.FromOutgoingContext(ctx)
	if ids := set.Get(requestIDKey); len(ids) > 0 && o.requestID == "" {
		return ctx, ids[0]
	}
	id := cmp.Or(o.requestID, rand.Text())
	return metadata.AppendToOutgoingContext(ctx, requestIDKey, id), id
}

// announce adds the size of a call's largest message to its metadata.
func announce(ctx context.Context, bytes int) context.Context {
	return metadata.AppendToOutgoingContext(ctx, messageBytesKey, strconv.Itoa(bytes))
}

// unary is an interceptor that gives a unary call metadata, a deadline and an announced size, and translates its error.
func (c *Client) unary(ctx context.Context, method string, request, response any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...Option) error {
	if _, set := ctx.Deadline(); !set && c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	ctx, id := begin(ctx, options)
	sent := &lentMessage{Message: request.(proto.Message)}
	err := invoke(announce(ctx, proto.Size(sent.Message)), method, sent, response, conn, options...)
	sent.recall(c.stuckTimeout)
	return c.errorOf(err, method, id)
}

// stream is a gRPC stream that ends if it makes no progress.
type stream struct {
	grpc.ClientStream
	client     *Client
	method, id string
	lends      bool
	end        context.CancelFunc
	idle       time.Duration // the longest time without progress
	watch      *time.Timer
	stood      atomic.Bool
}

// stream is an interceptor that gives a stream metadata and a deadline, but no announced size, and translates its
// error.
func (c *Client) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...Option) (grpc.ClientStream, error) {
	ctx, id := begin(ctx, options)
	s := &stream{client: c, method: method, id: id, lends: desc.ClientStreams, idle: c.timeout}
	if s.lends { // no retries, for which gRPC would keep all sent messages
		options = append(slices.Clone(options), neverAgain())
	}
	if _, set := ctx.Deadline(); set || c.timeout <= 0 {
		s.idle = longestStream
	}
	ctx, s.end = context.WithTimeout(ctx, longestStream)
	s.watch = time.AfterFunc(s.idle, func() {
		s.stood.Store(true)
		s.end()
	})
	var err error
	if s.ClientStream, err = open(ctx, desc, conn, method, options...); err != nil {
		return nil, s.progress(err)
	}
	return s, nil
}

// progress restarts the timer of the stream after a message was sent or received. If err is not nil, the stream has
// ended: progress then stops the timer, and translates err unless it is io.EOF.
func (s *stream) progress(err error) error {
	if err == nil {
		s.watch.Reset(s.idle)
		return nil
	}
	s.watch.Stop()
	s.end()
	if err == io.EOF {
		return err
	}
	if s.stood.Load() {
		err = newError(codes.DeadlineExceeded, "the stream stood still for %v; the server is %s", s.idle, s.client.target)
	}
	return s.client.errorOf(err, s.method, s.id)
}

// SendMsg is part of grpc.ClientStream. Messages of a method that takes a stream are sent from the caller's memory,
// because copies would take as much memory again. SendMsg then waits until the connection has released this memory.
// After an io.EOF, RecvMsg returns the error of the stream.
func (s *stream) SendMsg(message any) error {
	sent := &lentMessage{Message: message.(proto.Message)}
	if s.lends {
		message = sent
	}
	err := s.ClientStream.SendMsg(message)
	sent.recall(s.client.stuckTimeout)
	if err == io.EOF {
		return err
	}
	return s.progress(err)
}

// RecvMsg is part of grpc.ClientStream.
func (s *stream) RecvMsg(message any) error { return s.progress(s.ClientStream.RecvMsg(message)) }

// call is a unary call. Its tensors are separate from its messages, and have the names of the messages' fields.
type call struct {
	method            string
	request, response proto.Message
	inputs            []input
	results           []*result
	stream            func(context.Context) error // gets the results if a message would be too large; nil: the call has no stream
}

type input struct {
	name   protoreflect.Name
	tensor Tensor
}

// result is a tensor of an answer.
type result struct {
	name   protoreflect.Name
	want   *posencv1.Tensor // expected type and shape, without Shape if only the server knows it; nil: no such tensor
	into   Tensor           // the caller's memory for the tensor; the zero Tensor means new memory
	got    Tensor
	joined int64 // received bytes, if the tensor comes in parts
}

// place returns the place in shared memory where the server may write the result, or nil. It also returns nil if the
// size of the result is not known, because the server always writes the whole result.
func (r *result) place() *posencv1.SharedMemory {
	if r.want.GetShape() == nil {
		return nil
	}
	return r.into.m.GetShared()
}

// take sets the caller's memory for the result. Errors name the contract's field of the output, such as q_output.
func (r *result) take(output Tensor) error {
	switch wrong := output.mismatch(r.want); {
	case !output.Given():
	case r.want == nil:
		return wrongArgument(string(r.name)+"_output", "is given, but %s is not; give both or neither", r.name)
	case wrong != "":
		return wrongArgument(string(r.name)+"_output", "%s", wrong)
	}
	r.into = output
	return nil
}

// check returns an error if the answer does not have the tensor with the expected type and shape, or if the tensor does
// not fit the caller's memory.
func (r *result) check() error {
	if r.got.m.GetShared() != nil {
		r.got.m.Data, r.got.m.Shared = r.into.Bytes(), r.into.m.GetShared()
	}
	switch wrong := r.got.mismatch(r.want); {
	case r.want == nil:
		return nil
	case !r.got.Given():
		return newError(codes.Internal, "the answer has no %s", r.name)
	case wrong != "":
		return newError(codes.Internal, "the answer's %s %s", r.name, wrong)
	}
	r.want = r.got.m
	return r.take(r.into)
}

// perform makes a call, and puts its results into the response. If a tensor lies in shared memory, the request has its
// place. If no tensor lies in shared memory, or if the server refuses places, the request has the bytes of all tensors.
// The bytes go in one message. If the message would be too large, they go in a stream.
func (c *Client) perform(ctx context.Context, k *call, options []Option) (err error) {
	for i, output := range optionsOf(options).outputs {
		if i < len(k.results) {
			err = k.results[i].take(output)
		} else if output.Given() {
			err = wrongArgument("Into", "output %d is given; this call has %d results", i, len(k.results))
		}
		if err != nil {
			return err
		}
	}
	m, places, inPlace := k.message(true)
	switch {
	case len(inPlace) > 0:
		err = c.send(ctx, k, m, append(slices.Clone(options), neverAgain()))
	case places:
		err = c.send(ctx, k, m, options)
	}
	if !places || mayRepeat(err, inPlace) {
		m, _, _ = k.message(false)
		if err = c.send(ctx, k, m, options); k.stream != nil && tooLarge(err) {
			err = k.stream(ctx)
		}
	}
	if err != nil {
		proto.Reset(k.response)
		return err
	}
	for _, r := range k.results {
		if r.got.Given() {
			set(k.response.ProtoReflect(), r.name, r.got.m)
		}
	}
	return nil
}

func set(m protoreflect.Message, name protoreflect.Name, value proto.Message) {
	m.Set(m.Descriptor().Fields().ByName(name), protoreflect.ValueOfMessage(value.ProtoReflect()))
}

// message returns the request with its tensors. If `places` is true and a tensor lies in shared memory, the request has
// only the tensor's place there (file and offset), otherwise its bytes. message also returns whether the request has
// places, and the names of the inputs that the server overwrites.
func (k *call) message(places bool) (m protoreflect.Message, has bool, inPlace []string) {
	m = shallow(k.request.ProtoReflect())
	for _, r := range k.results {
		if place := r.place(); places && place != nil {
			set(m, r.name+"_output", place)
			has = true
		}
	}
	for _, in := range k.inputs {
		t, place := in.tensor.described(), in.tensor.m.GetShared()
		if t == nil {
			continue
		}
		if t.Data = in.tensor.m.Data; places && place != nil {
			t.Data, t.Shared, has = nil, place, true
			if slices.ContainsFunc(k.results, func(r *result) bool { return proto.Equal(r.place(), place) }) {
				inPlace = append(inPlace, string(in.name))
			}
		}
		set(m, in.name, t)
	}
	return m, has, inPlace
}

// send makes the call in one message.
func (c *Client) send(ctx context.Context, k *call, m protoreflect.Message, options []Option) error {
	limit := c.maxMessageBytes
	if k.stream != nil && len(k.inputs) > 0 {
		limit = min(limit, c.streamAbove)
	}
	if bytes := int64(proto.Size(m.Interface())); bytes > limit {
		return newError(codes.ResourceExhausted, "request: %d bytes; the limit is %d, split the batch", bytes, limit)
	}
	response := k.response.ProtoReflect()
	for _, r := range k.results {
		if into := r.into.Bytes(); into != nil {
			set(response, r.name, &posencv1.Tensor{Data: into[:0:len(into)]})
		}
	}
	err := c.conn.Invoke(ctx, service+k.method, m.Interface(), k.response, options...)
	for _, r := range k.results {
		if err == nil {
			r.got.m = response.Get(response.Descriptor().Fields().ByName(r.name)).Message().Interface().(*posencv1.Tensor)
			err = r.check()
		}
	}
	return err
}

// mayRepeat gets the error of a call with places, and returns whether the call may be made again with bytes. inPlace
// are the inputs that the server overwrites. If they may have been overwritten, mayRepeat adds this to the error's text
// and returns false.
func mayRepeat(err error, inPlace []string) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case codes.Unimplemented, codes.PermissionDenied:
		return e.Reason == "SHARED_MEMORY_UNAVAILABLE" || e.Reason == "FIELD_UNKNOWN" // the reason of an older server
	case codes.InvalidArgument, codes.NotFound, codes.Aborted: // refused
		return false
	}
	if len(inPlace) == 0 {
		return tooLarge(err)
	}
	e.Message += "; " + strings.Join(inPlace, " and ") + " may have been rotated by then, in part or whole: write it anew"
	return false
}

// AddEncoding combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an absolute encoding. The field x of the
// request must be unset.
func (c *Client) AddEncoding(ctx context.Context, request *posencv1.AddEncodingRequest, x Tensor, options ...Option) (Tensor, error) {
	want, response := x.described(), &posencv1.AddEncodingResponse{}
	if x.Given() && request.GetCombination() == posencv1.Combination_COMBINATION_CONCATENATE {
		want.Shape = nil
	}
	k := &call{"AddEncoding", request, response, []input{{"x", x}}, []*result{{name: "x", want: want}}, nil}
	err := c.perform(ctx, k, options)
	return Tensor{response.X}, err
}

// ScoreRelative computes attention scores of encodings that act inside attention: q [B, H, Sq, D] and k [B, H, Sk, D]
// give [B, H, Sq, Sk], not divided by sqrt(D). The fields q and k of the request must be unset.
func (c *Client) ScoreRelative(ctx context.Context, request *posencv1.ScoreRelativeRequest, q, k Tensor, options ...Option) (Tensor, error) {
	response, want := &posencv1.ScoreRelativeResponse{}, &posencv1.Tensor{Dtype: cmp.Or(request.GetDtype(), DtypeFloat32)}
	if request.GetDtype() == 0 && q.Dtype() == DtypeFloat64 { // the server's default
		want.Dtype = DtypeFloat64
	}
	if qs, ks := q.m.GetShape(), k.m.GetShape(); len(qs) == 4 && len(ks) == 4 {
		want.Shape = []int64{qs[0], qs[1], qs[2], ks[2]}
	}
	inputs, results := []input{{"q", q}, {"k", k}}, []*result{{name: "scores", want: want}}
	err := c.perform(ctx, &call{"ScoreRelative", request, response, inputs, results, nil}, options)
	return Tensor{response.Scores}, err
}

// ConvertPairing reorders the rows of a projection's weight or bias, [H * D, ...], so that a checkpoint for one pairing
// works with the other. The field weight of the request must be unset.
func (c *Client) ConvertPairing(ctx context.Context, request *posencv1.ConvertPairingRequest, weight Tensor, options ...Option) (Tensor, error) {
	response, results := &posencv1.ConvertPairingResponse{}, []*result{{name: "weight", want: weight.described()}}
	err := c.perform(ctx, &call{"ConvertPairing", request, response, []input{{"weight", weight}}, results, nil}, options)
	return Tensor{response.Weight}, err
}
