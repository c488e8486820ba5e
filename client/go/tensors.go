package posenc

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

// AddEncoding combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an
// absolute encoding. x goes beside the request, which is without it.
func (c *Client) AddEncoding(ctx context.Context, request *posencv1.AddEncodingRequest, x Tensor, options ...Option) (Tensor, error) {
	return c.tensorCall(ctx, "AddEncoding", request, &posencv1.AddEncodingResponse{}, options, sentTensor{15, x})
}

// ScoreRelative computes attention scores of encodings that act inside
// attention: q [B, H, Sq, D] and k [B, H, Sk, D] give [B, H, Sq, Sk], not
// divided by sqrt(D). q and k go beside the request, which is without them.
func (c *Client) ScoreRelative(ctx context.Context, request *posencv1.ScoreRelativeRequest, q, k Tensor, options ...Option) (Tensor, error) {
	return c.tensorCall(ctx, "ScoreRelative", request, &posencv1.ScoreRelativeResponse{}, options,
		sentTensor{qField, q}, sentTensor{kField, k})
}

// ConvertPairing reorders the rows of a projection's weight or bias, [H * D,
// ...], so that a checkpoint for one pairing works with the other. The weight
// goes beside the request, which is without it.
func (c *Client) ConvertPairing(ctx context.Context, request *posencv1.ConvertPairingRequest, weight Tensor, options ...Option) (Tensor, error) {
	return c.tensorCall(ctx, "ConvertPairing", request, &posencv1.ConvertPairingResponse{}, options, sentTensor{15, weight})
}

// tensorCall makes a call that sends tensors and gets one, which is field 15 of
// all these answers.
func (c *Client) tensorCall(ctx context.Context, method string, request, response proto.Message, options []Option, tensors ...sentTensor) (Tensor, error) {
	o := collect(options)
	if err := o.unused(func(i int) bool { return i == 0 }); err != nil {
		return Tensor{}, err
	}
	sent := &sentMessage{body: request}
	for _, t := range tensors {
		if t.tensor.given {
			sent.tensors = append(sent.tensors, t)
		}
	}
	result := &receivedTensor{field: 15, into: o.output(0)}
	received := &receivedMessage{body: response, tensors: []*receivedTensor{result}}
	err := c.channel.Invoke(o.with(ctx), service+method, sent, received)
	return result.tensor, err
}
