package posenc

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

// Approximate bytes of a table's row: 128 channels, cosines and sines, in
// float32. It only selects the connection for a table.
const rowBytes = 1024

// Table holds rows of cosines and sines, or of a single table. Shapes are as in
// posencv1.TableLayout: [rows, ...], or [heads, rows, ...] if frequencies
// differ by head.
type Table struct {
	Amplitude       float64 // attention factor, which the values contain
	Cos, Sin, Table Tensor
}

func tableOfParts(amplitude float64, parts []Tensor) *Table {
	return &Table{Amplitude: amplitude, Cos: parts[0], Sin: parts[1], Table: parts[2]}
}

// Fields of BuildTableResponse and BuildTableStreamResponse: cos, sin, table.
func tableTensors() []*receivedTensor {
	return []*receivedTensor{{field: 13}, {field: 14}, {field: 15}}
}

// BuildTable builds rows of a table: cosines and sines of a rotary encoding, or
// an absolute encoding. If the table is over a limit, it is requested again as a
// stream, and Progress follows it. Into names memory for cos and sin, or for the
// single table.
func (c *Client) BuildTable(ctx context.Context, request *posencv1.BuildTableRequest, options ...Option) (*Table, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	o := collect(options)
	ctx = o.with(ctx)
	outputs, err := outputsOfTable(request, o)
	if err != nil {
		return nil, err
	}
	if byPlace := outputs.byPlace(request); byPlace != nil {
		table, err := c.tableOnce(ctx, byPlace, outputs.receive(true))
		if err == nil {
			return table, nil
		}
		if told, again := (sharing{}).failed(err); !again {
			return nil, told
		}
	}
	table, err := c.tableOnce(ctx, request, outputs.receive(false))
	// Rows without a number (a grid of more than 2^31 cells) fit no memory.
	if err == nil || !tooLarge(err) || rowsOf(request) == 0 {
		return table, err
	}
	rows := &tableRows{
		total: rowsOf(request),
		axis:  min(int(request.GetRope().GetSpec().GetExplicitFrequencies().GetHeads()), 1),
		into:  outputs.receive(false),
	}
	err = c.BuildTableStream(ctx, &posencv1.BuildTableStreamRequest{Table: request}, func(first int64, table *Table) error {
		if err := rows.add(first, table); err != nil {
			return err
		}
		if o.progress != nil {
			o.progress(rows.bytes())
		}
		return nil
	})
	if err != nil {
		return nil, outside("table", err) // callers do not know the message `table`
	}
	return rows.take()
}

// tableOnce requests a table in one message.
func (c *Client) tableOnce(ctx context.Context, request *posencv1.BuildTableRequest, into []*receivedTensor) (*Table, error) {
	body := &posencv1.BuildTableResponse{}
	response := &receivedMessage{body: body, tensors: into}
	if err := c.channel.Invoke(ctx, service+"BuildTable", &sentMessage{body: request}, response); err != nil {
		return nil, response.failure(err)
	}
	for _, t := range into {
		if t.name == "" {
			continue // this table does not have it
		}
		if err := t.check(result{t.name, tableDtype(request), tableShape(request), -1}); err != nil {
			return nil, err
		}
	}
	return tableOfParts(body.GetAmplitude(), response.results()), nil
}

// BuildTableStream builds a table of any length, and calls take for each message
// of rows with the first row's number. An error of take ends the call and is
// returned.
func (c *Client) BuildTableStream(ctx context.Context, request *posencv1.BuildTableStreamRequest, take func(firstRow int64, rows *Table) error, options ...Option) error {
	if err := c.checkStream(ctx, take != nil); err != nil {
		return err
	}
	return c.serverStream(collect(options).with(ctx), "BuildTableStream", request,
		func() *receivedMessage {
			return &receivedMessage{body: &posencv1.BuildTableStreamResponse{}, tensors: tableTensors()}
		},
		func(m *receivedMessage) error {
			body := m.body.(*posencv1.BuildTableStreamResponse)
			return take(body.GetFirstRow(), tableOfParts(body.GetAmplitude(), m.results()))
		})
}

func (c *Client) checkStream(ctx context.Context, taken bool) error {
	if !taken {
		return wrongArgument("take", "is nil; must be a function")
	}
	return c.check(ctx)
}

// serverStream makes a call with one request and many answers.
func (c *Client) serverStream(ctx context.Context, method string, request proto.Message, response func() *receivedMessage, take func(*receivedMessage) error) error {
	ctx, cancel := context.WithCancel(announce(ctx, int64(proto.Size(request))))
	defer cancel()
	s, err := c.channel.open(ctx, &grpc.StreamDesc{ServerStreams: true}, service+method)
	if err != nil {
		return err
	}
	if err := s.SendMsg(request); err != nil && err != io.EOF {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return s.end(err)
	}
	for {
		m := response()
		err := s.RecvMsg(m)
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = take(m)
		}
		if err != nil {
			cancel()
			return err
		}
	}
}

// rowsOf returns a request's number of rows; 0 if only the server knows it.
func rowsOf(request *posencv1.BuildTableRequest) int64 {
	positions := request.GetPositions()
	// The last extent of ids counts tokens; the others are axes or sequences.
	if shape := positions.GetIds().GetShape(); len(shape) > 0 {
		return shape[len(shape)-1]
	}
	if ends := positions.GetPacked().GetCuSeqlens(); len(ends) > 0 {
		return ends[len(ends)-1]
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

// tableRows joins the parts of a table.
type tableRows struct {
	total, next int64
	axis        int // of the rows; outer axes are heads
	into        []*receivedTensor
	amplitude   float64
	whole       [3]Tensor
}

func (r *tableRows) misfit(first int64) error {
	return newError(codes.Internal, "the table came with rows at %d that do not fit the request or the rows before", first)
}

func (r *tableRows) add(first int64, table *Table) error {
	if first != r.next {
		return r.misfit(first)
	}
	r.amplitude = table.Amplitude
	rows := int64(0)
	for i, part := range []Tensor{table.Cos, table.Sin, table.Table} {
		if part.given != r.whole[i].given && first != 0 {
			return r.misfit(first)
		}
		if !part.given {
			continue
		}
		got, err := r.addTensor(&r.whole[i], r.into[i], part)
		if err != nil {
			return err
		}
		if rows != 0 && rows != got {
			return r.misfit(first)
		}
		rows = got
	}
	r.next += rows
	return nil
}

func (r *tableRows) addTensor(whole *Tensor, into *receivedTensor, part Tensor) (rows int64, err error) {
	if err := (&receivedTensor{tensor: part}).check(result{into.name, part.dtype, nil, -1}); err != nil {
		return 0, err
	}
	if len(part.shape) < r.axis+2 {
		return 0, r.misfit(r.next)
	}
	heads, bytes := int64(1), int64(len(part.data))
	if r.axis == 1 {
		heads = part.shape[0]
	}
	rows = part.shape[r.axis]
	if heads < 1 || rows < 1 || rows > r.total-r.next || bytes%heads != 0 || bytes/heads%rows != 0 {
		return 0, r.misfit(r.next)
	}
	row := bytes / heads / rows
	if !whole.given {
		// 2^62 bytes are beyond any memory.
		if row > 0 && r.total > (1<<62)/row/heads {
			return 0, r.misfit(r.next)
		}
		size := heads * r.total * row
		if into.into == nil {
			needed := size
			if into.field != tableFields["table"] {
				needed *= 2 // cosines and sines
			}
			if err := checkMemory(needed); err != nil {
				return 0, err
			}
		}
		data, err := into.memory(int(size))
		if err != nil {
			return 0, err
		}
		*whole = Tensor{dtype: part.dtype, shape: append([]int64(nil), part.shape...), data: data, given: true, place: into.place}
		whole.shape[r.axis] = r.total
	}
	if part.dtype != whole.dtype || int64(len(whole.data)) != heads*r.total*row {
		return 0, r.misfit(r.next)
	}
	// A message has all heads, one after the other, with only its rows.
	for h := range heads {
		copy(whole.data[(h*r.total+r.next)*row:], part.data[h*rows*row:(h+1)*rows*row])
	}
	return rows, nil
}

func (r *tableRows) bytes() (done, total int64) {
	for _, t := range r.whole {
		total += int64(len(t.data))
	}
	return total / max(r.total, 1) * r.next, total
}

func (r *tableRows) take() (*Table, error) {
	if r.next != r.total {
		return nil, newError(codes.Internal, "the table came with %d of %d rows", r.next, r.total)
	}
	return tableOfParts(r.amplitude, r.whole[:]), nil
}

// checkMemory refuses a result larger than the machine's memory: Go ends the
// process if the kernel refuses memory, and the kernel ends it if it has
// overcommitted.
func checkMemory(size int64) error {
	memory := machineMemory()
	if size <= memory {
		return nil
	}
	return newError(codes.ResourceExhausted,
		"the result has %d bytes, and this machine %d of memory; ask for less, or take it in parts", size, memory)
}

// BiasTile is a part of a bias matrix, [heads, queries, keys], with the
// positions of its first query and key.
type BiasTile struct {
	QueryStart, KeyStart int64
	Tensor               Tensor
}

// BuildBiasTiles builds an attention bias for a range of queries and keys, and
// calls take for each tile in row-major order of the matrix. An error of take
// ends the call and is returned.
func (c *Client) BuildBiasTiles(ctx context.Context, request *posencv1.BuildBiasRequest, take func(BiasTile) error, options ...Option) error {
	if err := c.checkStream(ctx, take != nil); err != nil {
		return err
	}
	return c.serverStream(collect(options).with(ctx), "BuildBias", request,
		func() *receivedMessage {
			return &receivedMessage{body: &posencv1.BuildBiasResponse{}, tensors: []*receivedTensor{{field: 15}}}
		},
		func(m *receivedMessage) error {
			body := m.body.(*posencv1.BuildBiasResponse)
			return take(BiasTile{body.GetQueryStart(), body.GetKeyStart(), m.tensors[0].tensor})
		})
}

// BuildBias builds an attention bias as one tensor, [heads, query_length,
// key_length].
func (c *Client) BuildBias(ctx context.Context, request *posencv1.BuildBiasRequest, options ...Option) (Tensor, error) {
	matrix := &biasMatrix{request: request}
	if err := c.BuildBiasTiles(ctx, request, matrix.add, options...); err != nil {
		return Tensor{}, err
	}
	if !matrix.whole.given {
		// Trained tables may have no heads: such a bias has no tile.
		return Tensor{shape: []int64{0, request.GetQueryLength(), request.GetKeyLength()}, given: true}, nil
	}
	if matrix.done != int64(len(matrix.whole.data)) {
		return Tensor{}, newError(codes.Internal, "the bias came with tiles missing")
	}
	return matrix.whole, nil
}

// biasMatrix joins the tiles of a bias.
type biasMatrix struct {
	request *posencv1.BuildBiasRequest
	whole   Tensor
	done    int64
}

func (m *biasMatrix) add(tile BiasTile) error {
	shape := tile.Tensor.shape
	rows, columns := m.request.GetQueryLength(), m.request.GetKeyLength()
	row, column := tile.QueryStart-m.request.GetQueryStart(), tile.KeyStart-m.request.GetKeyStart()
	size := int64(elementBytes(tile.Tensor.dtype))
	misfit := newError(codes.Internal, "the bias came with a tile at query %d, key %d that does not fit the request",
		tile.QueryStart, tile.KeyStart)
	if len(shape) != 3 || size == 0 || row < 0 || column < 0 ||
		shape[1] < 1 || shape[1] > rows-row || shape[2] < 1 || shape[2] > columns-column ||
		shape[0] < 1 || shape[0] > int64(len(tile.Tensor.data)) ||
		int64(len(tile.Tensor.data)) != shape[0]*shape[1]*shape[2]*size {
		return misfit
	}
	heads, queries, keys := shape[0], shape[1], shape[2]
	if !m.whole.given {
		// 2^62 bytes are beyond any memory.
		if columns > (1<<62)/size/heads/rows {
			return newError(codes.ResourceExhausted, "bias: %d x %d x %d elements; take it tile by tile",
				heads, rows, columns)
		}
		if err := checkMemory(heads * rows * columns * size); err != nil {
			return err
		}
		m.whole = Tensor{dtype: tile.Tensor.dtype, shape: []int64{heads, rows, columns}, data: newBytes(int(heads * rows * columns * size)), given: true}
	}
	if tile.Tensor.dtype != m.whole.dtype || heads != m.whole.shape[0] {
		return misfit
	}
	for h := range heads {
		for i := range queries {
			from := (h*queries + i) * keys * size
			to := ((h*rows+row+i)*columns + column) * size
			copy(m.whole.data[to:], tile.Tensor.data[from:from+keys*size])
		}
	}
	m.done += int64(len(tile.Tensor.data))
	return nil
}
