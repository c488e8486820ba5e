package posenc

import (
	"context"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

// AddEncoding combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an
// absolute encoding. The request itself does not have x.
func (c *Client) AddEncoding(ctx context.Context, request *posencv1.AddEncodingRequest, x Tensor, options ...Option) (Tensor, error) {
	return c.tensorCall(ctx, "AddEncoding", request, &posencv1.AddEncodingResponse{}, options,
		encoded(request, x), sentTensor{field: 15, tensor: x})
}

// ScoreRelative computes attention scores of encodings that act inside
// attention: q [B, H, Sq, D] and k [B, H, Sk, D] give [B, H, Sq, Sk], not
// divided by sqrt(D). The request itself does not have q and k.
func (c *Client) ScoreRelative(ctx context.Context, request *posencv1.ScoreRelativeRequest, q, k Tensor, options ...Option) (Tensor, error) {
	return c.tensorCall(ctx, "ScoreRelative", request, &posencv1.ScoreRelativeResponse{}, options,
		scores(request.GetDtype(), q, k), sentTensor{field: qField, tensor: q}, sentTensor{field: kField, tensor: k})
}

// ConvertPairing reorders the rows of a projection's weight or bias, [H * D,
// ...], so that a checkpoint for one pairing works with the other. The request
// itself does not have the weight.
func (c *Client) ConvertPairing(ctx context.Context, request *posencv1.ConvertPairingRequest, weight Tensor, options ...Option) (Tensor, error) {
	return c.tensorCall(ctx, "ConvertPairing", request, &posencv1.ConvertPairingResponse{}, options,
		likeInput("weight", weight), sentTensor{field: 15, tensor: weight})
}

func encoded(request *posencv1.AddEncodingRequest, x Tensor) result {
	if request.GetCombination() == posencv1.Combination_COMBINATION_CONCATENATE {
		return result{"x", x.dtype, nil, -1}
	}
	return likeInput("x", x)
}

// scores is [B, H, Sq, Sk]; its size is unknown if q and k have other shapes.
func scores(dtype Dtype, q, k Tensor) result {
	if dtype == 0 { // the server's default
		dtype = DtypeFloat32
		if q.dtype == DtypeFloat64 {
			dtype = DtypeFloat64
		}
	}
	if len(q.shape) != 4 || len(k.shape) != 4 {
		return result{"scores", dtype, nil, -1}
	}
	shape := append(slices.Clone(q.shape[:3]), k.shape[2])
	return result{"scores", dtype, shape, int(shape[0]*shape[1]*shape[2]*shape[3]) * elementBytes(dtype)}
}

// tensorCall makes a call that sends tensors and receives one, in field 15 of
// all these answers.
func (c *Client) tensorCall(ctx context.Context, method string, request, response proto.Message, options []Option, r result, tensors ...sentTensor) (Tensor, error) {
	if err := c.check(ctx); err != nil {
		return Tensor{}, err
	}
	if reflected := request.ProtoReflect(); !reflected.IsValid() {
		request = reflected.New().Interface() // nil: the server reports missing fields
	}
	o := collect(options)
	if err := o.unused([]string{r.name}, func(int) bool { return true }); err != nil {
		return Tensor{}, err
	}
	ctx = o.with(ctx)
	inputs := make([]Tensor, len(tensors))
	for i, t := range tensors {
		inputs[i] = t.tensor
		if err := checkOpen(fieldName(request, t.field), t.tensor); err != nil {
			return Tensor{}, err
		}
	}
	if err := o.misfit(0, r); err != nil {
		return Tensor{}, err
	}
	// The server writes its whole result to a place, even if the output is
	// smaller.
	outputs := o.outputs
	if r.bytes < 0 {
		outputs = nil
	}
	s := sharingOf([]string{r.name}, inputs, outputs)
	if !s.any {
		return c.sendTensors(ctx, method, request, response, r, tensors, o.receive(0, r.name, 15, false), false)
	}
	body := proto.Clone(request)
	into := o.receive(0, r.name, 15, outputs != nil)
	if into.shared {
		setOutput(body, r.name, into.place)
	}
	shared := slices.Clone(tensors)
	for i := range shared {
		shared[i].shared = shared[i].tensor.place != nil
	}
	tensor, err := c.sendTensors(ctx, method, body, response, r, shared, into, len(s.inPlace) > 0)
	if err == nil {
		return tensor, nil
	}
	if told, again := s.failed(err); !again {
		return Tensor{}, told
	}
	return c.sendTensors(ctx, method, request, response, r, tensors, o.receive(0, r.name, 15, false), false)
}

func (c *Client) sendTensors(ctx context.Context, method string, request, response proto.Message, r result, tensors []sentTensor, into *receivedTensor, once bool) (Tensor, error) {
	sent := &sentMessage{body: request, once: once}
	for _, t := range tensors {
		if t.tensor.given {
			sent.tensors = append(sent.tensors, t)
		}
	}
	received := &receivedMessage{body: response, tensors: []*receivedTensor{into}}
	err := received.failure(c.channel.Invoke(ctx, service+method, sent, received))
	if err == nil {
		err = into.check(r)
	}
	if err != nil {
		return Tensor{}, err
	}
	return into.tensor, nil
}

func fieldName(message proto.Message, number protowire.Number) string {
	return string(message.ProtoReflect().Descriptor().Fields().ByNumber(number).Name())
}
