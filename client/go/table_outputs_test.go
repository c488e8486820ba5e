package posenc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

// tableRequests returns requests for every kind of table, by name.
func tableRequests() map[string]*posencv1.BuildTableRequest {
	rope := func(dtype Dtype, layout posencv1.TableLayout, spec *posencv1.RopeSpec) *posencv1.BuildTableRequest {
		return &posencv1.BuildTableRequest{Encoding: &posencv1.BuildTableRequest_Rope{Rope: Spec(spec).Message()},
			Positions: StartAt(3), Rows: 5, Dtype: dtype, Layout: layout}
	}
	absolute := func(encoding *posencv1.AbsoluteEncoding) *posencv1.BuildTableRequest {
		return &posencv1.BuildTableRequest{Encoding: &posencv1.BuildTableRequest_Absolute{Absolute: encoding},
			Positions: StartAt(1), Rows: 2}
	}
	byHead := &posencv1.RopeSpec{Pairing: HalfSplit, RotaryDim: 4, Scaling: &posencv1.RopeSpec_ExplicitFrequencies{
		ExplicitFrequencies: &posencv1.ExplicitFrequencies{Heads: 3, Values: []float64{1, 2, 3, 4, 5, 6}}}}
	eight := &posencv1.RopeSpec{Pairing: HalfSplit, RotaryDim: 8}
	ids := rope(0, 0, eight)
	ids.Rows, ids.Positions = 0, IDs(Int64([]int64{9, 2, 4}, 3))
	grid := absolute(&posencv1.AbsoluteEncoding{Encoding: &posencv1.AbsoluteEncoding_SincosGrid{
		SincosGrid: &posencv1.SincosGrid{Dim: 8, Extents: []int32{2, 3}, LeadingZeroRows: 1}}})
	grid.Rows, grid.Positions = 0, nil
	return map[string]*posencv1.BuildTableRequest{
		"half":        rope(0, 0, eight),
		"duplicated":  rope(DtypeFloat16, posencv1.TableLayout_TABLE_LAYOUT_DUPLICATED, eight),
		"repeated":    rope(DtypeBFloat16, posencv1.TableLayout_TABLE_LAYOUT_PAIR_REPEATED, eight),
		"complex":     rope(DtypeFloat64, posencv1.TableLayout_TABLE_LAYOUT_COMPLEX, eight),
		"by head":     rope(0, posencv1.TableLayout_TABLE_LAYOUT_HALF, byHead),
		"ids":         ids,
		"sincos grid": grid,
		"sinusoidal": absolute(&posencv1.AbsoluteEncoding{Encoding: &posencv1.AbsoluteEncoding_Sinusoidal{
			Sinusoidal: &posencv1.Sinusoidal{Dim: 7, Order: posencv1.SinusoidalOrder_SINUSOIDAL_ORDER_SIN_COS}}}),
		"timestep": absolute(&posencv1.AbsoluteEncoding{Encoding: &posencv1.AbsoluteEncoding_Timestep{
			Timestep: &posencv1.Timestep{Dim: 6}}}),
		"learned": absolute(&posencv1.AbsoluteEncoding{Encoding: &posencv1.AbsoluteEncoding_Learned{
			Learned: &posencv1.LearnedTable{Table: Float32([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 4, 3).message()}}}),
		"fourier": absolute(&posencv1.AbsoluteEncoding{Encoding: &posencv1.AbsoluteEncoding_FourierFeatures{
			FourierFeatures: &posencv1.FourierFeatures{Frequencies: Float32([]float32{0.5, 2, 1}, 1, 3).message()}}}),
	}
}

// theTensors returns the tensors of a table: cos and sin, or the single tensor.
func theTensors(table *Table) []Tensor {
	if table.Table.Given() {
		return []Tensor{table.Table}
	}
	return []Tensor{table.Cos, table.Sin}
}

func TestTablesOfEveryKindGoToTheirPlaces(t *testing.T) {
	socket, _, _ := startSharing(t)
	c := dial(t, socket)
	ctx := context.Background()
	for name, request := range tableRequests() {
		wire, err := c.BuildTable(ctx, request)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := theTensors(wire)
		region := regionOf(t, c, 8192)
		memory := region.memory
		for i := range memory {
			memory[i] = 7
		}
		var outputs []Tensor
		for i, tensor := range want {
			output, err := region.Tensor(tensor.Dtype(), int64(4096*i), tensor.Shape()...)
			if err != nil {
				t.Fatal(err)
			}
			outputs = append(outputs, output)
		}
		before := proto.Clone(request)
		table, err := c.BuildTable(ctx, request, Into(outputs...))
		if err != nil || table.Amplitude != wire.Amplitude || !proto.Equal(before, request) {
			t.Fatalf("%s: %v, %v", name, table, err)
		}
		for i, got := range theTensors(table) {
			if string(got.Bytes()) != string(want[i].Bytes()) || !slices.Equal(got.Shape(), want[i].Shape()) ||
				got.Dtype() != want[i].Dtype() || &got.Bytes()[0] != &outputs[i].Bytes()[0] || !proto.Equal(got.m.Shared, outputs[i].m.Shared) {
				t.Errorf("%s: %v", name, got)
			}
			if memory[4096*i+len(got.Bytes())] != 7 {
				t.Errorf("%s: wrote behind the output", name)
			}
		}
	}
}

func TestAGridOfMoreThan31BitsIsTooLarge(t *testing.T) {
	_, err := dial(t, startServer(t)).BuildTable(context.Background(), &posencv1.BuildTableRequest{
		Encoding: &posencv1.BuildTableRequest_Absolute{Absolute: &posencv1.AbsoluteEncoding{
			Encoding: &posencv1.AbsoluteEncoding_SincosGrid{
				SincosGrid: &posencv1.SincosGrid{Dim: 16, Extents: []int32{1 << 20, 1 << 20}}}}}})
	if e := asError(t, err); e.Code != codes.ResourceExhausted {
		t.Errorf("got %v", e)
	}
}

// The server limits the size of its answers. Tensors that the server writes to shared memory do not count.
func TestATableInSharedMemoryIsNoLargeAnswer(t *testing.T) {
	socket, _, _ := startSharing(t, "--max-response-bytes", "4KiB")
	c := dial(t, socket)
	ctx := context.Background()
	const rows = 300
	for _, source := range []RopeSource{Spec(&posencv1.RopeSpec{Pairing: HalfSplit, RotaryDim: 128}), Preset("llama-2-7b")} {
		request := &posencv1.BuildTableRequest{Encoding: &posencv1.BuildTableRequest_Rope{Rope: source.Message()},
			Positions: StartAt(0), Rows: rows}
		wire, err := c.BuildTable(ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		region := regionOf(t, c, 2*rows*64*4)
		cos, _ := region.Tensor(DtypeFloat32, 0, rows, 64)
		sin, _ := region.Tensor(DtypeFloat32, rows*64*4, rows, 64)
		streamed := false
		got, err := c.BuildTable(ctx, request, Into(cos, sin), Progress(func(int64, int64) { streamed = true }))
		if err != nil || streamed {
			t.Fatalf("%v, streamed: %v", err, streamed)
		}
		if string(cos.Bytes()) != string(wire.Cos.Bytes()) || string(sin.Bytes()) != string(wire.Sin.Bytes()) ||
			&got.Sin.Bytes()[0] != &sin.Bytes()[0] {
			t.Error("the tables differ")
		}
	}
}

func TestATableGoesToMemoryThatIsNotShared(t *testing.T) {
	c := dial(t, startServer(t))
	ctx := context.Background()
	rope, err := c.Rope(ctx, Preset("llama-2-7b"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := rope.Table(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	cos, sin := make([]float32, 3*64), make([]float32, 3*64)
	if _, err := rope.Table(ctx, 3, Into(Float32(cos, 3, 64), Float32(sin, 3, 64))); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(cos, want.Cos.Float32s()) || !slices.Equal(sin, want.Sin.Float32s()) {
		t.Error("the tables differ")
	}
	clear(cos)
	if _, err := rope.Table(ctx, 3, Into(Float32(cos, 3, 64))); err != nil || !slices.Equal(cos, want.Cos.Float32s()) {
		t.Errorf("cos alone: %v", err)
	}
	small, one := Float32(make([]float32, 64), 1, 64), Float32(cos, 3, 64)
	for text, outputs := range map[string][]Tensor{
		"cos_output: has shape [1 64]; must have [3 64]":                      {small, one},
		"sin_output: has 256 bytes, which do not fit [3 64] of DTYPE_FLOAT32": {one, Float32(make([]float32, 64), 3, 64)},
		"cos_output: is DTYPE_FLOAT16; must be DTYPE_FLOAT32":                 {Float16(make([]uint16, 384), 3, 128)},
		"Into: output 2 is given; this call has 2 results":                    {one, Float32(sin, 3, 64), small},
	} {
		var e *Error
		if _, err := rope.Table(ctx, 3, Into(outputs...)); !errors.As(err, &e) || e.Message != text || !strings.HasPrefix(text, e.Field+":") {
			t.Errorf("got %v; want %s", err, text)
		}
	}
}

func TestATableThatTheServerCannotPlaceComesAsBytes(t *testing.T) {
	socket, address, prefix := startSharing(t)
	region := regionOf(t, dial(t, socket), 2*3*4*4)
	cos, _ := region.Tensor(DtypeFloat32, 0, 3, 4)
	sin, _ := region.Tensor(DtypeFloat32, 3*4*4, 3, 4)
	if !strings.HasPrefix(region.Name(), prefix) {
		t.Fatal("no memory is shared")
	}
	other := dial(t, address) // calls over TCP may not name shared memory
	rope, err := other.Rope(context.Background(), Spec(&posencv1.RopeSpec{Pairing: HalfSplit, RotaryDim: 8}))
	if err != nil {
		t.Fatal(err)
	}
	want, err := rope.Table(context.Background(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rope.Table(context.Background(), 3, Into(cos, sin)); err != nil || string(sin.Bytes()) != string(want.Sin.Bytes()) {
		t.Error(err)
	}
}
