package posenc

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/posenc/posenc/client/go/posencv1"
)

const service = "/posenc.v1.PositionalEncodingService/"

// call is a unary call whose tensors are not in its messages.
type call struct {
	method            string
	request, response proto.Message
	inputs            []input
	results           []*result
	stream            func(context.Context) error // fills the results in another way; nil: there is none
}

// input is a tensor of a request.
type input struct {
	field  protowire.Number
	tensor Tensor
}

// result is a tensor of an answer. Only the server knows the size of a
// concatenation, or of a preset's table.
type result struct {
	name   string
	field  protowire.Number
	absent bool // the call does not have it
	dtype  Dtype
	shape  []int64 // nil: not known
	bytes  int64   // -1: not known
	into   Tensor  // the caller's memory; not given: new memory
	got    Tensor
	joined int64 // bytes, if it comes in parts
}

// likeInput is a result with the type and shape of a tensor of the request.
func likeInput(name string, field protowire.Number, t Tensor) *result {
	return &result{name: name, field: field, absent: !t.given, dtype: t.dtype, shape: t.shape, bytes: int64(len(t.data))}
}

// use takes the caller's memory for the result. Errors name the contract's field
// for its place.
func (r *result) use(output Tensor) error {
	field := r.name + "_output"
	switch {
	case r.absent:
		return wrongArgument(field, "is given, but %s is not; give both or neither", r.name)
	case output.place.closed():
		return wrongArgument(field, "lies in a shared region that is closed")
	case output.dtype != r.dtype:
		return wrongArgument(field, "is %v; must be %v", output.dtype, r.dtype)
	case r.shape != nil && !slices.Equal(output.shape, r.shape):
		return wrongArgument(field, "has shape %v; must have %v", output.shape, r.shape)
	case r.bytes >= 0 && int64(len(output.data)) != r.bytes:
		return wrongArgument(field, "has %d bytes; must have %d", len(output.data), r.bytes)
	}
	r.into = output
	return nil
}

// shared returns whether the server can write the result to its place. It writes
// a whole result, so that the size must be known.
func (r *result) shared() bool { return r.into.place != nil && r.bytes >= 0 }

// check returns an error unless the answer has the tensor with the expected type
// and shape and all of its bytes, and these fit the caller's memory.
func (r *result) check() error {
	got := &r.got
	switch {
	case r.absent:
		return nil
	case !got.given:
		return newError(codes.Internal, "the answer has no %s", r.name)
	case got.dtype != r.dtype || r.shape != nil && !slices.Equal(got.shape, r.shape) ||
		sizeOf(got.dtype, got.shape) != int64(len(got.data)):
		return newError(codes.Internal, "the answer's %s is %v %v with %d bytes; must be %v %v",
			r.name, got.dtype, got.shape, len(got.data), r.dtype, r.shape)
	case r.into.given && len(r.into.data) != len(got.data):
		return wrongArgument(r.name+"_output", "has %d bytes; the result has %d", len(r.into.data), len(got.data))
	}
	return nil
}

// name is that of the input's field.
func (k *call) name(in input) string {
	return string(k.request.ProtoReflect().Descriptor().Fields().ByNumber(in.field).Name())
}

// perform makes the call and returns its results, which are zero after an error.
func (c *Client) perform(ctx context.Context, k *call, o *callOptions) ([]Tensor, error) {
	tensors := make([]Tensor, len(k.results))
	if err := c.attempt(o.with(ctx), k, o.outputs); err != nil {
		return tensors, err
	}
	for i, r := range k.results {
		tensors[i] = r.got
	}
	return tensors, nil
}

// attempt makes the call: with places of tensors, if some lie in shared memory;
// otherwise, or if the server refuses that, with their bytes; as a stream, if
// these are too large for a message.
func (c *Client) attempt(ctx context.Context, k *call, outputs []Tensor) error {
	for _, in := range k.inputs {
		if in.tensor.place.closed() {
			return wrongArgument(k.name(in), "lies in a shared region that is closed")
		}
	}
	for i, output := range outputs {
		if !output.given {
			continue
		}
		if i >= len(k.results) {
			return wrongArgument("Into", "output %d is given; this call has %d results", i, len(k.results))
		}
		if err := k.results[i].use(output); err != nil {
			return err
		}
	}
	if k.shares() && (k.stream == nil || k.bytes(true) <= c.streamAbove) {
		if err, again := k.refused(c.send(ctx, k, true)); !again {
			return err
		}
	}
	if k.stream == nil || k.bytes(false) <= c.streamAbove {
		if err := c.send(ctx, k, false); k.stream == nil || !tooLarge(err) {
			return err
		}
	}
	return k.stream(ctx)
}

// bytes returns the size of all tensors that are sent, or if some are shared of
// the others.
func (k *call) bytes(shared bool) (bytes int64) {
	for _, in := range k.inputs {
		if !shared || in.tensor.place == nil {
			bytes += int64(len(in.tensor.data))
		}
	}
	return bytes
}

func (k *call) shares() bool {
	return slices.ContainsFunc(k.inputs, func(in input) bool { return in.tensor.place != nil }) ||
		slices.ContainsFunc(k.results, (*result).shared)
}

// inPlace returns the names of the inputs that the server would overwrite.
func (k *call) inPlace() (names []string) {
	for _, r := range k.results {
		if r.shared() && slices.ContainsFunc(k.inputs, func(in input) bool {
			return in.tensor.place != nil && *in.tensor.place == *r.into.place
		}) {
			names = append(names, r.name)
		}
	}
	return names
}

// send makes the call in one message, with places if shared is true.
func (c *Client) send(ctx context.Context, k *call, shared bool) error {
	request := k.request
	var options []grpc.CallOption
	if shared {
		request = k.withPlaces()
		if len(k.inPlace()) > 0 {
			options = append(options, once())
		}
	}
	body, err := proto.Marshal(request)
	if err != nil {
		return wrongArgument("request", "%w", err)
	}
	m := &sentMessage{loans: &loans{}}
	m.add(body, nil)
	for _, in := range k.inputs {
		if in.tensor.given {
			m.addTensor(in.field, in.tensor, shared && in.tensor.place != nil)
		}
	}
	conn := c.connection(m.size())
	conn.calls.Add(1)
	defer conn.calls.Add(-1)
	err = conn.Invoke(ctx, service+k.method, m, &receivedMessage{k.response, k.results}, options...)
	m.loans.recall(c.stuckTimeout)
	for _, r := range k.results {
		if err == nil {
			err = r.check()
		}
	}
	return err
}

// withPlaces returns a shallow copy of the request with places for results.
func (k *call) withPlaces() proto.Message {
	message := k.request.ProtoReflect().New()
	k.request.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		message.Set(field, value)
		return true
	})
	for _, r := range k.results {
		if r.shared() {
			field := message.Descriptor().Fields().ByName(protoreflect.Name(r.name + "_output"))
			message.Set(field, protoreflect.ValueOfMessage(r.into.place.message().ProtoReflect()))
		}
	}
	return message.Interface()
}

// refused converts the error of a call with places for its caller. again:
// nothing has been written, and the call may be sent again with bytes.
func (k *call) refused(err error) (told error, again bool) {
	var e *Error
	if !errors.As(err, &e) {
		return err, false
	}
	// An older server does not know the fields.
	refused := e.Reason == "SHARED_MEMORY_UNAVAILABLE" || e.Reason == "FIELD_UNKNOWN"
	if refused && (e.Code == codes.Unimplemented || e.Code == codes.PermissionDenied) {
		return err, true
	}
	inPlace := k.inPlace()
	if len(inPlace) == 0 {
		return err, tooLarge(err)
	}
	switch e.Code {
	// The server has refused the call.
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Aborted, codes.Unimplemented:
	default:
		e.Message += "; " + strings.Join(inPlace, " and ") + " may have been rotated by then, in part or whole: write it anew"
	}
	return e, false
}

// AddEncoding combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an
// absolute encoding. The request itself does not have x.
func (c *Client) AddEncoding(ctx context.Context, request *posencv1.AddEncodingRequest, x Tensor, options ...Option) (Tensor, error) {
	r := likeInput("x", 15, x)
	if request.GetCombination() == posencv1.Combination_COMBINATION_CONCATENATE {
		r.shape, r.bytes = nil, -1
	}
	return c.oneTensor(ctx, "AddEncoding", request, &posencv1.AddEncodingResponse{}, options, r, input{15, x})
}

// ScoreRelative computes attention scores of encodings that act inside
// attention: q [B, H, Sq, D] and k [B, H, Sk, D] give [B, H, Sq, Sk], not
// divided by sqrt(D). The request itself does not have q and k.
func (c *Client) ScoreRelative(ctx context.Context, request *posencv1.ScoreRelativeRequest, q, k Tensor, options ...Option) (Tensor, error) {
	r := &result{name: "scores", field: 15, dtype: request.GetDtype(), bytes: -1}
	if r.dtype == 0 { // the server's default
		r.dtype = DtypeFloat32
		if q.dtype == DtypeFloat64 {
			r.dtype = DtypeFloat64
		}
	}
	if len(q.shape) == 4 && len(k.shape) == 4 {
		r.shape = append(slices.Clone(q.shape[:3]), k.shape[2])
		r.bytes = sizeOf(r.dtype, r.shape)
	}
	return c.oneTensor(ctx, "ScoreRelative", request, &posencv1.ScoreRelativeResponse{}, options, r, input{14, q}, input{15, k})
}

// ConvertPairing reorders the rows of a projection's weight or bias, [H * D,
// ...], so that a checkpoint for one pairing works with the other. The request
// itself does not have the weight.
func (c *Client) ConvertPairing(ctx context.Context, request *posencv1.ConvertPairingRequest, weight Tensor, options ...Option) (Tensor, error) {
	return c.oneTensor(ctx, "ConvertPairing", request, &posencv1.ConvertPairingResponse{}, options,
		likeInput("weight", 15, weight), input{15, weight})
}

func (c *Client) oneTensor(ctx context.Context, method string, request, response proto.Message, options []Option, r *result, inputs ...input) (Tensor, error) {
	r.absent = false // the server reports a missing input
	k := &call{method: method, request: request, response: response, inputs: inputs, results: []*result{r}}
	results, err := c.perform(ctx, k, optionsOf(options))
	return results[0], err
}
