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
	stream            func(context.Context) error // gets the results of a call that is too large; nil: there is none
}

type input struct {
	name   string
	field  protowire.Number
	tensor Tensor
}

// result is a tensor of an answer.
type result struct {
	name   string
	field  protowire.Number
	want   Tensor // its type and shape, which is nil if only the server knows it; not given: the call has no such tensor
	into   Tensor // the caller's memory for it; not given: new memory
	got    Tensor
	joined int64 // bytes that have come, if it comes in parts
}

// shared returns whether the server may write the result to its place. It writes the whole result, so the size must be
// known.
func (r *result) shared() bool { return r.into.place != nil && r.want.shape != nil }

// check returns an error unless the answer has the tensor, as it is wanted and as the caller's memory can hold it.
func (r *result) check() error {
	switch wrong := r.got.mismatch(r.want); {
	case !r.want.given:
		return nil
	case !r.got.given:
		return newError(codes.Internal, "the answer has no %s", r.name)
	case wrong != "":
		return newError(codes.Internal, "the answer's %s %s", r.name, wrong)
	case r.into.given && len(r.into.data) != len(r.got.data):
		return wrongArgument(r.name+"_output", "has %d bytes; the result has %d", len(r.into.data), len(r.got.data))
	}
	return nil
}

// perform makes a call and returns its results, which are zero after an error.
func (c *Client) perform(ctx context.Context, k *call, o *callOptions) ([]Tensor, error) {
	tensors := make([]Tensor, len(k.results))
	err := k.prepare(o.outputs)
	if err == nil {
		err = c.attempt(o.with(ctx), k)
	}
	for i, r := range k.results {
		if err == nil {
			tensors[i] = r.got
		}
	}
	return tensors, err
}

// prepare takes the caller's memory for the results. Errors name the contract's fields for their places.
func (k *call) prepare(outputs []Tensor) error {
	for _, in := range k.inputs {
		if in.tensor.place.closed() {
			return wrongArgument(in.name, "lies in a shared region that is closed")
		}
	}
	for i, output := range outputs {
		if !output.given {
			continue
		}
		if i >= len(k.results) {
			return wrongArgument("Into", "output %d is given; this call has %d results", i, len(k.results))
		}
		r := k.results[i]
		field := r.name + "_output"
		if !r.want.given {
			return wrongArgument(field, "is given, but %s is not; give both or neither", r.name)
		}
		if output.place.closed() {
			return wrongArgument(field, "lies in a shared region that is closed")
		}
		if wrong := output.mismatch(r.want); wrong != "" {
			return wrongArgument(field, "%s", wrong)
		}
		r.into = output
	}
	return nil
}

// attempt makes the call: with places, if a tensor lies in shared memory; with bytes, if none does or the server
// refuses places; and as a stream, if the bytes are too large for a message.
func (c *Client) attempt(ctx context.Context, k *call) error {
	shares := slices.ContainsFunc(k.results, (*result).shared)
	all, rest := int64(0), int64(0) // bytes of all inputs, and of those that have no place
	var inPlace []string
	for _, in := range k.inputs {
		all += int64(len(in.tensor.data))
		if in.tensor.place == nil {
			rest += int64(len(in.tensor.data))
			continue
		}
		shares = true
		for _, r := range k.results {
			if r.shared() && *r.into.place == *in.tensor.place {
				inPlace = append(inPlace, in.name)
			}
		}
	}
	if shares && (k.stream == nil || rest <= c.streamAbove) {
		err := c.send(ctx, k, true, len(inPlace) > 0)
		if !mayRepeat(err, inPlace) {
			return err
		}
	}
	if k.stream == nil || all <= c.streamAbove {
		if err := c.send(ctx, k, false, false); k.stream == nil || !tooLarge(err) {
			return err
		}
	}
	return k.stream(ctx)
}

// send makes the call in one message, with places if shared is true, and never twice if once is true.
func (c *Client) send(ctx context.Context, k *call, shared, once bool) error {
	request := k.request
	if shared {
		request = proto.Clone(request)
		for _, r := range k.results {
			if message := request.ProtoReflect(); r.shared() {
				field := message.Descriptor().Fields().ByName(protoreflect.Name(r.name + "_output"))
				message.Set(field, protoreflect.ValueOfMessage(r.into.place.message().ProtoReflect()))
			}
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
	var options []grpc.CallOption
	if once {
		options = append(options, neverAgain())
	}
	err = c.connection(m.size()).Invoke(ctx, service+k.method, m, &receivedMessage{k.response, k.results}, options...)
	if m.size() >= lendFrom {
		m.loans.recall(c.stuckTimeout)
	}
	for _, r := range k.results {
		if err == nil {
			err = r.check()
		}
	}
	return err
}

// mayRepeat returns whether a call with places may be made again with bytes. If it may not, because these inputs may
// have been overwritten, the error says so.
func mayRepeat(err error, inPlace []string) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	// An older server does not know the fields.
	refused := e.Reason == "SHARED_MEMORY_UNAVAILABLE" || e.Reason == "FIELD_UNKNOWN"
	if refused && (e.Code == codes.Unimplemented || e.Code == codes.PermissionDenied) {
		return true
	}
	if len(inPlace) == 0 {
		return tooLarge(err)
	}
	switch e.Code {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Aborted, codes.Unimplemented: // refused
	default:
		e.Message += "; " + strings.Join(inPlace, " and ") + " may have been rotated by then, in part or whole: write it anew"
	}
	return false
}

// AddEncoding combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an absolute encoding. The request itself
// does not have x.
func (c *Client) AddEncoding(ctx context.Context, request *posencv1.AddEncodingRequest, x Tensor, options ...Option) (Tensor, error) {
	want := x
	if request.GetCombination() == posencv1.Combination_COMBINATION_CONCATENATE {
		want.shape = nil
	}
	k := &call{method: "AddEncoding", request: request, response: &posencv1.AddEncodingResponse{}, inputs: []input{{"x", 15, x}}}
	return c.oneTensor(ctx, k, "x", want, options)
}

// ScoreRelative computes attention scores of encodings that act inside attention: q [B, H, Sq, D] and k [B, H, Sk, D]
// give [B, H, Sq, Sk], not divided by sqrt(D). The request itself does not have q and k.
func (c *Client) ScoreRelative(ctx context.Context, request *posencv1.ScoreRelativeRequest, q, k Tensor, options ...Option) (Tensor, error) {
	want := Tensor{dtype: request.GetDtype()}
	if want.dtype == 0 { // the server's default
		want.dtype = DtypeFloat32
		if q.dtype == DtypeFloat64 {
			want.dtype = DtypeFloat64
		}
	}
	if len(q.shape) == 4 && len(k.shape) == 4 {
		want.shape = append(slices.Clone(q.shape[:3]), k.shape[2])
	}
	return c.oneTensor(ctx, &call{
		method: "ScoreRelative", request: request, response: &posencv1.ScoreRelativeResponse{},
		inputs: []input{{"q", 14, q}, {"k", 15, k}},
	}, "scores", want, options)
}

// ConvertPairing reorders the rows of a projection's weight or bias, [H * D, ...], so that a checkpoint for one pairing
// works with the other. The request itself does not have the weight.
func (c *Client) ConvertPairing(ctx context.Context, request *posencv1.ConvertPairingRequest, weight Tensor, options ...Option) (Tensor, error) {
	return c.oneTensor(ctx, &call{
		method: "ConvertPairing", request: request, response: &posencv1.ConvertPairingResponse{},
		inputs: []input{{"weight", 15, weight}},
	}, "weight", weight, options)
}

func (c *Client) oneTensor(ctx context.Context, k *call, name string, want Tensor, options []Option) (Tensor, error) {
	want.given = true // the server reports a missing input
	k.results = []*result{{name: name, field: 15, want: want}}
	results, err := c.perform(ctx, k, optionsOf(options))
	return results[0], err
}
