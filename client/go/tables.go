package posenc

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

// Table holds rows of cosines and sines, or of a single table. Shapes are as in posencv1.TableLayout: [rows, ...], or
// [heads, rows, ...] if frequencies differ by head.
type Table struct {
	Amplitude       float64 // attention factor, which the values contain
	Cos, Sin, Table Tensor
	WholeShape      []int64 // in the first part of a stream, the shape of the whole Cos and Sin, or Table
}

// BuildTable builds rows of a table: cosines and sines of a rotary encoding, or an absolute encoding. If the table is
// over a limit, it is requested again as a stream, and Progress follows it. Into names memory for cos and sin, or for
// the single table.
func (c *Client) BuildTable(ctx context.Context, request *posencv1.BuildTableRequest, options ...Option) (*Table, error) {
	o, body := optionsOf(options), &posencv1.BuildTableResponse{}
	k := &call{method: "BuildTable", request: request, response: body, results: tableResults(request)}
	k.stream = func(ctx context.Context) error { return c.tableByRows(ctx, request, k.results, body, o.progress) }
	tensors, err := c.perform(ctx, k, o)
	if err != nil {
		return nil, err
	}
	if len(tensors) == 1 {
		return &Table{Amplitude: body.GetAmplitude(), Table: tensors[0]}, nil
	}
	return &Table{Amplitude: body.GetAmplitude(), Cos: tensors[0], Sin: tensors[1]}, nil
}

// tableByRows gets a table's results as a stream.
func (c *Client) tableByRows(ctx context.Context, request *posencv1.BuildTableRequest, results []*result, body *posencv1.BuildTableResponse, progress func(done, total int64)) error {
	axis := min(int(request.GetRope().GetSpec().GetExplicitFrequencies().GetHeads()), 1) // of the rows; 0: no heads
	var at []int64
	err := c.BuildTableStream(ctx, &posencv1.BuildTableStreamRequest{Table: request}, func(first int64, part *Table) error {
		if at == nil && len(part.WholeShape) > axis && part.WholeShape[axis] == rowsOf(request) {
			at = make([]int64, len(part.WholeShape))
		}
		if at == nil || first != at[axis] {
			return newError(codes.Internal, "the table came with rows at %d that do not fit the request or the rows before", first)
		}
		parts := []Tensor{part.Cos, part.Sin}
		if len(results) == 1 {
			parts = []Tensor{part.Table}
		}
		if err := join(results, part.WholeShape, parts, at); err != nil {
			return err
		}
		at[axis] += parts[0].shape[axis]
		body.Amplitude = part.Amplitude
		if progress != nil {
			all := int64(len(results)) // equally large
			progress(all*results[0].joined, all*int64(len(results[0].got.data)))
		}
		return nil
	})
	var e *Error
	if errors.As(err, &e) && strings.HasPrefix(e.Field, "table.") { // a message that the caller does not know
		long := e.Field
		e.Field = strings.TrimPrefix(long, "table.")
		e.Message, e.Metadata["field"] = strings.ReplaceAll(e.Message, long, e.Field), e.Field
		for _, violation := range e.Violations {
			violation.Field = strings.TrimPrefix(violation.Field, "table.")
		}
	}
	return cmp.Or(err, joined(results))
}

// BuildTableStream builds a table of any length, and calls take for each message of rows with the first row's number.
// An error of take ends the call and is returned.
func (c *Client) BuildTableStream(ctx context.Context, request *posencv1.BuildTableStreamRequest, take func(firstRow int64, rows *Table) error, options ...Option) error {
	return receive(optionsOf(options).with(ctx), c.stub.BuildTableStream, request, func(m *posencv1.BuildTableStreamResponse) error {
		return take(m.GetFirstRow(), &Table{m.GetAmplitude(), tensorOf(m.GetCos()), tensorOf(m.GetSin()), tensorOf(m.GetTable()), m.GetWholeShape()})
	})
}

// receive makes a call with one request and many answers.
func receive[Q, A any](ctx context.Context, open func(context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[A], error), request *Q, take func(*A) error) error {
	ctx, cancel := context.WithCancel(announce(ctx, proto.Size(any(request).(proto.Message))))
	defer cancel()
	s, err := open(ctx, request)
	for err == nil {
		var answer *A
		if answer, err = s.Recv(); err == nil {
			err = take(answer)
		}
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// join copies parts of results, which have this whole shape, to their place.
func join(results []*result, whole []int64, parts []Tensor, at []int64) error {
	for i, r := range results {
		part := parts[i]
		if !r.got.given {
			size := sizeOf(part.dtype, whole)
			if r.into.given && int64(len(r.into.data)) != size {
				return wrongArgument(r.name+"_output", "has %d bytes; the result has %d", len(r.into.data), size)
			}
			// Go ends the process if the kernel refuses memory, and the kernel ends it if it has overcommitted.
			if memory := machineMemory(); size < 0 || size > memory/int64(len(results)) {
				return newError(codes.ResourceExhausted, "the result has shape %v, %d bytes, and this machine %d of memory; ask for less, or take it in parts", whole, size, memory)
			}
			r.got = Tensor{dtype: part.dtype, shape: whole, data: r.into.data, given: true, place: r.into.place}
			if !r.into.given {
				r.got.data = newBytes(int(size))
			}
		}
		if !r.got.paste(part, at) {
			return newError(codes.Internal, "the %s of shape %v came with a part %v at %v, which does not fit", r.name, r.got.shape, part.shape, at)
		}
		r.joined += int64(len(part.data))
	}
	return nil
}

// joined returns an error unless all parts of the results have come.
func joined(results []*result) error {
	for _, r := range results {
		if r.joined != int64(len(r.got.data)) {
			return newError(codes.Internal, "the %s came with %d of %d bytes", r.name, r.joined, len(r.got.data))
		}
		if err := r.check(); err != nil {
			return err
		}
	}
	return nil
}

// BiasTile is a part of a bias matrix, [heads, queries, keys], with the positions of its first query and key.
type BiasTile struct {
	QueryStart, KeyStart int64
	Tensor               Tensor
	WholeShape           []int64 // of the matrix, in the first tile
}

// BuildBiasTiles builds an attention bias for a range of queries and keys, and calls take for each tile in row-major
// order of the matrix. An error of take ends the call and is returned.
func (c *Client) BuildBiasTiles(ctx context.Context, request *posencv1.BuildBiasRequest, take func(BiasTile) error, options ...Option) error {
	return receive(optionsOf(options).with(ctx), c.stub.BuildBias, request, func(m *posencv1.BuildBiasResponse) error {
		return take(BiasTile{m.GetQueryStart(), m.GetKeyStart(), tensorOf(m.GetTile()), m.GetWholeShape()})
	})
}

// BuildBias builds an attention bias as one tensor, [heads, query_length, key_length].
func (c *Client) BuildBias(ctx context.Context, request *posencv1.BuildBiasRequest, options ...Option) (Tensor, error) {
	// Trained tables may have no heads: such a bias has no tile.
	want := Tensor{shape: []int64{0, request.GetQueryLength(), request.GetKeyLength()}, given: true}
	bias := []*result{{name: "bias"}}
	err := c.BuildBiasTiles(ctx, request, func(tile BiasTile) error {
		if !bias[0].want.given && len(tile.WholeShape) > 0 {
			want.dtype, want.shape[0] = tile.Tensor.dtype, tile.WholeShape[0]
			bias[0].want = want
		}
		at := []int64{0, tile.QueryStart - request.GetQueryStart(), tile.KeyStart - request.GetKeyStart()}
		return join(bias, tile.WholeShape, []Tensor{tile.Tensor}, at)
	}, options...)
	if err = cmp.Or(err, joined(bias)); err != nil {
		return Tensor{}, err
	}
	if !bias[0].got.given {
		return want, nil
	}
	return bias[0].got, nil
}

// tableResults are the tensors of a table. Only the server knows their shape for presets and configurations, and for
// requests that it will refuse.
func tableResults(request *posencv1.BuildTableRequest) []*result {
	rope, absolute := request.GetRope(), request.GetAbsolute()
	// Only one of these is not 0.
	width := int64(rope.GetSpec().GetRotaryDim()+absolute.GetSinusoidal().GetDim()+absolute.GetSincosGrid().GetDim()+absolute.GetTimestep().GetDim()) +
		last(absolute.GetLearned().GetTable().GetShape()) + 2*last(absolute.GetFourierFeatures().GetFrequencies().GetShape())
	shape, results := []int64{rowsOf(request), width}, []*result{{name: "cos", field: 13}, {name: "sin", field: 14}}
	switch layout := request.GetLayout(); {
	case rope == nil:
		results = []*result{{name: "table", field: 15}}
	case layout == posencv1.TableLayout_TABLE_LAYOUT_COMPLEX:
		shape, results = []int64{rowsOf(request), width / 2, 2}, []*result{{name: "table", field: 15}}
	case layout <= posencv1.TableLayout_TABLE_LAYOUT_HALF:
		shape[1] /= 2
	}
	if heads := rope.GetSpec().GetExplicitFrequencies().GetHeads(); heads != 0 {
		shape = slices.Insert(shape, 0, int64(heads))
	}
	for _, r := range results {
		if r.want = (Tensor{dtype: cmp.Or(request.GetDtype(), DtypeFloat32), given: true}); sizeOf(r.want.dtype, shape) > 0 {
			r.want.shape = shape
		}
	}
	return results
}

// last returns the last number, or 0.
func last(numbers []int64) int64 {
	if len(numbers) == 0 {
		return 0
	}
	return numbers[len(numbers)-1]
}

// rowsOf returns a request's number of rows; 0 if only the server knows it.
func rowsOf(request *posencv1.BuildTableRequest) int64 {
	positions, grid := request.GetPositions(), request.GetAbsolute().GetSincosGrid()
	switch {
	case positions.GetIds() != nil: // after axes or sequences
		return last(positions.GetIds().GetShape())
	case positions.GetPacked() != nil:
		return last(positions.GetPacked().GetCuSeqlens())
	case grid == nil:
		return request.GetRows()
	}
	cells := int64(1)
	for _, extent := range grid.GetExtents() {
		cells = min(cells, 1<<31) * int64(extent) // more fit no memory
	}
	return cells + int64(grid.GetLeadingZeroRows())
}
