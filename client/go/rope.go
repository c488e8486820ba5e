package posenc

import (
	"context"

	"github.com/posenc/posenc/client/go/posencv1"
)

// Rope is a rotary encoding that the server has resolved once: its calls send the short specification, not a
// configuration.
type Rope struct {
	// Resolved is the server's answer: head_dim, frequencies, attention factor, assumptions, warnings.
	Resolved *posencv1.ResolveRopeResponse

	client *Client
	source RopeSource
}

// Rope resolves an encoding. A specification without rotary_dim is used without a call; Resolved is then nil.
func (c *Client) Rope(ctx context.Context, source RopeSource, options ...Option) (*Rope, error) {
	if source.err != nil {
		return nil, source.err
	}
	if spec := source.message.GetSpec(); spec != nil && spec.GetRotaryDim() == 0 && !spec.GetNope() {
		return &Rope{client: c, source: source}, nil
	}
	request := &posencv1.ResolveRopeRequest{Rope: source.message}
	resolved, err := c.ResolveRope(ctx, request, options...)
	if err != nil {
		return nil, err
	}
	spec := Spec(resolved.GetSpec())
	spec.message.SequenceLength = source.message.SequenceLength
	spec.message.HeadDim = resolved.GetHeadDim()
	return &Rope{Resolved: resolved, client: c, source: spec}, nil
}

// Source returns the resolved specification, for other calls.
func (r *Rope) Source() RopeSource { return r.source }

// Spec returns the resolved specification.
func (r *Rope) Spec() *posencv1.RopeSpec { return r.source.message.GetSpec() }

// Apply rotates q and k, one of which may be the zero Tensor, in place unless the option Into names other memory. FP8
// needs the option Saturate.
func (r *Rope) Apply(ctx context.Context, layout Layout, positions *Positions, q, k Tensor, options ...Option) error {
	args := ApplyRopeArgs{Rope: r.source, Layout: layout, Positions: positions, Q: q, K: k}
	_, _, err := r.client.ApplyRope(ctx, args, inPlace(options, q, k)...)
	return err
}

// Reposition moves rotated keys, in place unless the option Into names other memory.
func (r *Rope) Reposition(ctx context.Context, layout Layout, movement *Movement, k Tensor, options ...Option) error {
	args := RepositionArgs{OldRope: r.source, Layout: layout, Movement: movement, K: k}
	_, err := r.client.Reposition(ctx, args, inPlace(options, k)...)
	return err
}

// inPlace makes tensors their own outputs; it comes first, so that other options win.
func inPlace(options []Option, tensors ...Tensor) []Option {
	return append([]Option{Into(tensors...)}, options...)
}

// Table builds the cosines and sines of positions 0, 1, ..., [rows, pairs] in float32; BuildTable has all options.
func (r *Rope) Table(ctx context.Context, rows int, options ...Option) (*Table, error) {
	return r.client.BuildTable(ctx, &posencv1.BuildTableRequest{
		Encoding:  &posencv1.BuildTableRequest_Rope{Rope: r.source.message},
		Positions: StartAt(0),
		Rows:      int64(rows),
	}, options...)
}
