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

// Table holds rows of cosines and sines, or of a single tensor. posencv1.TableLayout describes the shapes: [rows, ...],
// or [heads, rows, ...] if frequencies differ by head.
type Table struct {
	Amplitude       float64 // attention factor, which the values contain
	Cos, Sin, Table Tensor
	WholeShape      []int64 // in the first part of a stream, the shape of the whole Cos and Sin, or Table
}

// BuildTable builds rows of a table: cosines and sines of a rotary encoding, or an absolute encoding. If the table is
// over a limit, it is requested again as a stream, and Progress is called. Into names memory for cos and sin, or for
// the single table. If Into names shared memory, the client first asks the server for the table's shape.
func (c *Client) BuildTable(ctx context.Context, request *posencv1.BuildTableRequest, options ...Option) (*Table, error) {
	o, body := optionsOf(options), &posencv1.BuildTableResponse{}
	k := &call{method: "BuildTable", request: request, response: body}
	k.results = []*result{{name: "cos"}, {name: "sin"}}
	rows := 2 // the axis of the rows, counted from the last
	if request.GetLayout() == posencv1.TableLayout_TABLE_LAYOUT_COMPLEX {
		rows = 3
	}
	if request.GetRope() == nil || rows == 3 {
		k.results = []*result{{name: "table"}}
	}
	for _, r := range k.results {
		r.want = &posencv1.Tensor{Dtype: cmp.Or(request.GetDtype(), DtypeFloat32)}
	}
	k.stream = func(ctx context.Context) error {
		err := c.tableByRows(ctx, request, 0, func(first int64, part *Table) error {
			parts := []Tensor{part.Cos, part.Sin}
			if len(k.results) == 1 {
				parts = []Tensor{part.Table}
			}
			body.Amplitude = part.Amplitude
			at := make([]int64, max(len(parts[0].m.GetShape()), rows))
			at[len(at)-rows] = first
			return join(k.results, part.WholeShape, parts, at, o.progress)
		}, options)
		return cmp.Or(err, joined(k.results))
	}
	if slices.ContainsFunc(o.outputs, func(t Tensor) bool { return t.m.GetShared() != nil }) {
		err := c.tableByRows(ctx, request, 1, func(_ int64, part *Table) error {
			for _, r := range k.results {
				r.want.Shape = part.WholeShape
			}
			return io.EOF
		}, options)
		if err != nil {
			return nil, err
		}
	}
	if err := c.perform(ctx, k, options); err != nil {
		return nil, err
	}
	return &Table{Amplitude: body.Amplitude, Cos: Tensor{body.Cos}, Sin: Tensor{body.Sin}, Table: Tensor{body.Table}}, nil
}

// tableByRows gets a table as a stream. Errors name the fields of the unary request, because the caller knows only this
// request.
func (c *Client) tableByRows(ctx context.Context, table *posencv1.BuildTableRequest, rows int64, take func(firstRow int64, rows *Table) error, options []Option) error {
	err := c.BuildTableStream(ctx, &posencv1.BuildTableStreamRequest{Table: table, RowsPerMessage: rows}, take, options...)
	var e *Error
	if errors.As(err, &e) {
		e.Field, e.Message = strings.TrimPrefix(e.Field, "table."), strings.TrimPrefix(e.Message, "table.")
	}
	return err
}

// BuildTableStream builds a table of any length. For each message of rows, BuildTableStream calls the function take
// with the index of the first row. If take returns an error, the call ends and returns this error; after io.EOF it
// returns nil.
func (c *Client) BuildTableStream(ctx context.Context, request *posencv1.BuildTableStreamRequest, take func(firstRow int64, rows *Table) error, options ...Option) error {
	return receive(ctx, c.Stub().BuildTableStream, request, func(m *posencv1.BuildTableStreamResponse) error {
		return take(m.GetFirstRow(), &Table{m.GetAmplitude(), Tensor{m.Cos}, Tensor{m.Sin}, Tensor{m.Table}, m.GetWholeShape()})
	}, options)
}

// receive makes a call with one request and many answers.
func receive[Q, A any](ctx context.Context, open func(context.Context, *Q, ...Option) (grpc.ServerStreamingClient[A], error), request *Q, take func(*A) error, options []Option) error {
	ctx, cancel := context.WithCancel(announce(ctx, proto.Size(any(request).(proto.Message))))
	defer cancel()
	s, err := open(ctx, request, options...)
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

// join copies parts of results to their place. whole is the shape of a whole result; only the first call needs it.
func join(results []*result, whole []int64, parts []Tensor, at []int64, progress func(done, total int64)) error {
	done, total := int64(0), int64(0)
	for i, r := range results {
		part := parts[i]
		if !r.got.Given() {
			r.got = Tensor{&posencv1.Tensor{Dtype: part.Dtype(), Shape: whole, Data: r.into.Bytes(), Shared: r.into.m.GetShared()}}
			size := sizeOf(r.got.m)
			// A result that is larger than the machine's memory is refused. Otherwise Go would end the process if the kernel
			// refuses memory, or a kernel that overcommits memory would end the process later.
			if memory := machineMemory(); size < 0 || size > memory/int64(len(results)) {
				return newError(codes.ResourceExhausted, "the result has shape %v, %d bytes, and this machine %d of memory; ask for less, or take it in parts", whole, size, memory)
			}
			if int64(len(r.got.m.Data)) != size {
				r.got.m.Data = newBytes(int(size))
			}
			if err := r.check(); err != nil {
				return err
			}
		}
		if !r.got.paste(part, at) {
			return newError(codes.Internal, "the %s of shape %v came with a part %v at %v, which does not fit", r.name, r.got.m.Shape, part.m.GetShape(), at)
		}
		r.joined += int64(len(part.Bytes()))
		done, total = done+r.joined, total+int64(len(r.got.Bytes()))
	}
	if progress != nil {
		progress(done, total)
	}
	return nil
}

// joined returns an error unless all parts of the results were received.
func joined(results []*result) error {
	for _, r := range results {
		if r.joined != int64(len(r.got.Bytes())) {
			return newError(codes.Internal, "the %s came with %d of %d bytes", r.name, r.joined, len(r.got.Bytes()))
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

// BuildBiasTiles builds an attention bias for a range of queries and keys. BuildBiasTiles calls the function take for
// each tile, in row-major order of the matrix. If take returns an error, the call ends and returns this error; after
// io.EOF it returns nil.
func (c *Client) BuildBiasTiles(ctx context.Context, request *posencv1.BuildBiasRequest, take func(BiasTile) error, options ...Option) error {
	return receive(ctx, c.Stub().BuildBias, request, func(m *posencv1.BuildBiasResponse) error {
		return take(BiasTile{m.GetQueryStart(), m.GetKeyStart(), Tensor{m.Tile}, m.GetWholeShape()})
	}, options)
}

// BuildBias builds an attention bias as one tensor, [heads, query_length, key_length].
func (c *Client) BuildBias(ctx context.Context, request *posencv1.BuildBiasRequest, options ...Option) (Tensor, error) {
	bias := []*result{{name: "bias"}}
	err := c.BuildBiasTiles(ctx, request, func(tile BiasTile) error {
		at := []int64{0, tile.QueryStart - request.GetQueryStart(), tile.KeyStart - request.GetKeyStart()}
		return join(bias, tile.WholeShape, []Tensor{tile.Tensor}, at, optionsOf(options).progress)
	}, options...)
	if err = cmp.Or(err, joined(bias)); err != nil {
		return Tensor{}, err
	}
	if !bias[0].got.Given() { // trained tables may have 0 heads
		return Bytes(request.GetDtype(), nil, 0, int(request.GetQueryLength()), int(request.GetKeyLength())), nil
	}
	return bias[0].got, nil
}
