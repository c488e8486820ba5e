package posenc

import (
	"cmp"
	"context"
	"io"
	"slices"

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
	// Rows without a number (a grid of more than 2^31 cells) fit no memory.
	if rowsOf(request) > 0 {
		k.stream = func(ctx context.Context) error { return c.tableByRows(ctx, request, k.results, body, o.progress) }
	}
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
	at := []int64{0} // the next row, after the heads
	if request.GetRope().GetSpec().GetExplicitFrequencies().GetHeads() > 0 {
		at = []int64{0, 0}
	}
	axis := len(at) - 1
	err := c.BuildTableStream(ctx, &posencv1.BuildTableStreamRequest{Table: request}, func(first int64, part *Table) error {
		if first != at[axis] || first == 0 && (len(part.WholeShape) <= axis || part.WholeShape[axis] != rowsOf(request)) {
			return newError(codes.Internal, "the table came with rows at %d that do not fit the request or the rows before", first)
		}
		parts := []Tensor{part.Cos, part.Sin}
		if len(results) == 1 {
			parts = []Tensor{part.Table}
		}
		if err := join(results, part.WholeShape, parts, at...); err != nil {
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
func join(results []*result, whole []int64, parts []Tensor, at ...int64) error {
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
		return join(bias, tile.WholeShape, []Tensor{tile.Tensor}, 0, tile.QueryStart-request.GetQueryStart(), tile.KeyStart-request.GetKeyStart())
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
	want := Tensor{dtype: cmp.Or(request.GetDtype(), DtypeFloat32), shape: []int64{rowsOf(request), tableWidth(request)}, given: true}
	if heads := request.GetRope().GetSpec().GetExplicitFrequencies().GetHeads(); heads != 0 {
		want.shape = slices.Insert(want.shape, 0, int64(heads))
	}
	results, width := []*result{{name: "cos", field: 13}, {name: "sin", field: 14}}, &want.shape[len(want.shape)-1]
	if layout := request.GetLayout(); request.GetRope() == nil || layout == posencv1.TableLayout_TABLE_LAYOUT_COMPLEX {
		results = []*result{{name: "table", field: 15}}
		if request.GetRope() != nil {
			*width /= 2
			want.shape = append(want.shape, 2)
		}
	} else if layout <= posencv1.TableLayout_TABLE_LAYOUT_HALF {
		*width /= 2
	}
	if sizeOf(want.dtype, want.shape) <= 0 {
		want.shape = nil
	}
	for _, r := range results {
		r.want = want
	}
	return results
}

// tableWidth returns the channels of a row; 0 if only the server knows.
func tableWidth(request *posencv1.BuildTableRequest) int64 {
	absolute := request.GetAbsolute()
	switch {
	case request.GetRope() != nil:
		return int64(request.GetRope().GetSpec().GetRotaryDim())
	case absolute.GetSinusoidal() != nil:
		return int64(absolute.GetSinusoidal().GetDim())
	case absolute.GetSincosGrid() != nil:
		return int64(absolute.GetSincosGrid().GetDim())
	case absolute.GetTimestep() != nil:
		return int64(absolute.GetTimestep().GetDim())
	case absolute.GetLearned() != nil:
		return lastExtent(absolute.GetLearned().GetTable().GetShape())
	default:
		return 2 * lastExtent(absolute.GetFourierFeatures().GetFrequencies().GetShape())
	}
}

// lastExtent returns 0 if there is none.
func lastExtent(shape []int64) int64 {
	if len(shape) == 0 {
		return 0
	}
	return shape[len(shape)-1]
}

// rowsOf returns a request's number of rows; 0 if only the server knows it.
func rowsOf(request *posencv1.BuildTableRequest) int64 {
	positions := request.GetPositions()
	// The last extent of ids counts tokens; the others are axes or sequences.
	if ids := positions.GetIds().GetShape(); len(ids) > 0 {
		return lastExtent(ids)
	}
	if ends := positions.GetPacked().GetCuSeqlens(); len(ends) > 0 {
		return lastExtent(ends)
	}
	grid := request.GetAbsolute().GetSincosGrid()
	if grid == nil {
		return request.GetRows()
	}
	// A grid has a row for every cell, after the rows of special tokens.
	cells := int64(1)
	for _, extent := range grid.GetExtents() {
		if extent < 0 || extent > 0 && cells > maxProtoBytes/int64(extent) {
			return 0
		}
		cells *= int64(extent)
	}
	return cells + int64(grid.GetLeadingZeroRows())
}
