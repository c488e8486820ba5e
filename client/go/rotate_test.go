package posenc

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/posenc/posenc/client/go/internal/elements"
	"github.com/posenc/posenc/client/go/posencv1"
)

func TestRotatesEveryDtypeInPlaceAsTheFormulaSays(t *testing.T) {
	c := dial(t, startServer(t))
	ctx := context.Background()
	rope, err := c.Rope(ctx, Spec(halfSplit))
	if err != nil {
		t.Fatal(err)
	}
	values := numbers(2 * 3 * 2 * 8)
	for _, dtype := range []Dtype{DtypeFloat32, DtypeFloat64, DtypeFloat16, DtypeBFloat16} {
		q := tensorWith(t, dtype, values, 2, 3, 2, 8)
		if err := rope.Apply(ctx, BSHD, StartAt(1000), q, Tensor{}); err != nil {
			t.Fatal(err)
		}
		want := rotatedAll(values, 8, 10000, func(head int) float64 { return 1000 + float64(head/2%3) })
		expectValues(t, q, want, tolerance(dtype))
	}
}

func TestRotatesFloat8AndSaturatesAsItIsTold(t *testing.T) {
	c := dial(t, startServer(t))
	ctx := context.Background()
	for _, dtype := range []Dtype{DtypeFloat8E4M3FN, DtypeFloat8E5M2} {
		k := tensorWith(t, dtype, numbers(3*2*8), 1, 3, 2, 8)
		args := ApplyRopeArgs{Rope: Spec(halfSplit), Positions: StartAt(1000), Layout: BSHD, K: k, Saturation: SaturationFinite}
		_, rotated, err := c.ApplyRope(ctx, args)
		if err != nil {
			t.Fatal(err)
		}
		want := rotatedAll(elements.Values(k.Dtype(), k.Bytes()), 8, 10000, func(head int) float64 { return 1000 + float64(head/2) })
		expectValues(t, rotated, want, tolerance(dtype))

		// The rotation is by about 45 degrees, so x cos + x sin is 1.4 x.
		turned := &posencv1.RopeSpec{Pairing: posencv1.Pairing_PAIRING_HALF_SPLIT,
			Scaling: &posencv1.RopeSpec_ExplicitFrequencies{
				ExplicitFrequencies: &posencv1.ExplicitFrequencies{Values: []float64{0.785}}}}
		top := nearestByte(dtype, map[Dtype]float64{DtypeFloat8E4M3FN: 448, DtypeFloat8E5M2: 57344}[dtype])
		args = ApplyRopeArgs{Rope: Spec(turned), Positions: StartAt(1), Layout: BSHD, K: Bytes(dtype, []byte{top, top}, 1, 1, 1, 2)}
		for saturation, want := range map[Saturation]uint8{SaturationFinite: top, SaturationNone: top + 1} {
			args.Saturation = saturation
			if _, rotated, err = c.ApplyRope(ctx, args); err != nil || rotated.Bytes()[1] != want {
				t.Errorf("%v, %v: got %v, %v; want %#x", dtype, saturation, rotated.Bytes(), err, want)
			}
		}
		rope, err := c.Rope(ctx, Spec(turned))
		if err != nil {
			t.Fatal(err)
		}
		k = Bytes(dtype, []byte{top, top}, 1, 1, 1, 2)
		if err = rope.Apply(ctx, BSHD, StartAt(1), Tensor{}, k, Saturate(SaturationNone)); err != nil || k.Bytes()[1] != top+1 {
			t.Errorf("%v by a Rope: %v, %v", dtype, k.Bytes(), err)
		}
		args.Saturation = 0
		var e *Error
		if _, _, err = c.ApplyRope(ctx, args); !errors.As(err, &e) || e.Reason != "FIELD_REQUIRED" || e.Field != "saturation" {
			t.Errorf("%v without saturation: %v", dtype, err)
		}
	}
}

func TestMovesInt8AndBytesOfBlocks(t *testing.T) {
	c := dial(t, startServer(t))
	ctx := context.Background()
	rope, err := c.Rope(ctx, Spec(halfSplit))
	if err != nil {
		t.Fatal(err)
	}
	numbers := []int8{100, -50, 0, 127}
	still := slices.Clone(numbers)
	if err = rope.Reposition(ctx, BSHD, ShiftBy(0), Int8(still, 1, 1, 1, 4), Saturate(SaturationFinite)); err != nil || !slices.Equal(still, numbers) {
		t.Errorf("int8: %v, %v", still, err)
	}
	block := make([]int8, 34)
	block[1], block[2] = 0x3c, 127 // the scale 1
	args := RepositionArgs{OldRope: Spec(halfSplit), Movement: ShiftBy(0), Layout: BSHD, K: Int8(block, 1, 1, 1, 34)}
	args.BlockFormat = BlockFormatQ8_0
	if moved, err := c.Reposition(ctx, args); err != nil || !slices.Equal(moved.Int8s(), block) {
		t.Errorf("q8_0: %v, %v", moved.Int8s(), err)
	}
	if err = rope.Reposition(ctx, BSHD, ShiftBy(0), args.K, Blocks(BlockFormatQ8_0)); err != nil {
		t.Errorf("q8_0 by a Rope: %v", err)
	}
}

func TestResolvesThePartThatIsAskedFor(t *testing.T) {
	c := dial(t, startServer(t))
	text := `{"model_type": "qwen2_vl", "vision_config": {"embed_dim": 1280, "num_heads": 16}}`
	rope, err := c.Rope(context.Background(), ConfigJSON(text, Part(posencv1.ModelPart_MODEL_PART_VISION)))
	if err != nil {
		t.Fatal(err)
	}
	if rope.Resolved.GetHeadDim() != 80 {
		t.Errorf("head_dim is %d; must be 80", rope.Resolved.GetHeadDim())
	}
}

func TestRotatesQueriesAndKeysByAModelsConfig(t *testing.T) {
	c := dial(t, startServer(t))
	ctx := context.Background()
	config := filepath.Join(t.TempDir(), "config.json")
	text := `{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 500000.0,
		"max_position_embeddings": 4096}`
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	rope, err := c.Rope(ctx, ConfigFile(config))
	if err != nil {
		t.Fatal(err)
	}
	qs, ks := numbers(5*4*16), numbers(5*2*16)
	q, k := tensorWith(t, DtypeFloat32, qs, 1, 5, 4, 16), tensorWith(t, DtypeFloat32, ks, 1, 5, 2, 16)
	if err := rope.Apply(ctx, BSHD, StartAt(7), q, k); err != nil {
		t.Fatal(err)
	}
	expectValues(t, q, rotatedAll(qs, 16, 500000, func(h int) float64 { return 7 + float64(h/4) }), tolerance(DtypeFloat32))
	expectValues(t, k, rotatedAll(ks, 16, 500000, func(h int) float64 { return 7 + float64(h/2) }), tolerance(DtypeFloat32))
}

func TestWritesToOtherMemoryAndLeavesTheInput(t *testing.T) {
	c := dial(t, startServer(t))
	ctx := context.Background()
	rope, err := c.Rope(ctx, Spec(halfSplit))
	if err != nil {
		t.Fatal(err)
	}
	values := numbers(4 * 8)
	q, out := tensorWith(t, DtypeFloat32, values, 1, 4, 1, 8), make([]float32, 4*8)
	if err := rope.Apply(ctx, BSHD, StartAt(3), q, Tensor{}, Into(Float32(out, 1, 4, 1, 8))); err != nil {
		t.Fatal(err)
	}
	expectValues(t, q, values, 0)
	want := rotatedAll(values, 8, 10000, func(h int) float64 { return 3 + float64(h) })
	expectValues(t, Float32(out, 1, 4, 1, 8), want, tolerance(DtypeFloat32))
}

func TestRefusesAnOutputOfAnotherSizeShapeOrType(t *testing.T) {
	c, ctx := dial(t, "127.0.0.1:1"), context.Background()
	q, weight := Float32(make([]float32, 8), 1, 1, 1, 8), Float32(make([]float32, 8), 4, 2)
	calls := map[string]func(out Tensor) error{
		"q_output": func(out Tensor) error {
			_, _, err := c.ApplyRope(ctx, ApplyRopeArgs{Rope: Spec(halfSplit), Layout: BSHD, Q: q}, Into(out))
			return err
		},
		"k_output": func(out Tensor) error {
			_, err := c.Reposition(ctx, RepositionArgs{OldRope: Spec(halfSplit), Layout: BSHD, K: q}, Into(out))
			return err
		},
		"x_output": func(out Tensor) error {
			_, err := c.AddEncoding(ctx, &posencv1.AddEncodingRequest{}, weight, Into(out))
			return err
		},
		"weight_output": func(out Tensor) error {
			_, err := c.ConvertPairing(ctx, &posencv1.ConvertPairingRequest{}, weight, Into(out))
			return err
		},
		"scores_output": func(out Tensor) error { // [1, 1, 1, 1]
			_, err := c.ScoreRelative(ctx, &posencv1.ScoreRelativeRequest{}, q, q, Into(out))
			return err
		},
	}
	outputs := map[string]Tensor{
		"size":  Float32(make([]float32, 7), 1, 1, 1, 8),
		"shape": Float32(make([]float32, 8), 8),
		"type":  Int32(make([]int32, 8), 1, 1, 1, 8),
	}
	for name, call := range calls {
		for what, out := range outputs {
			var e *Error
			if err := call(out); !errors.As(err, &e) || e.Code != codes.InvalidArgument || e.Field != name {
				t.Errorf("%s, another %s: got %v", name, what, err)
			}
		}
	}
}

func TestRefusesAnOutputForATensorThatIsNotGiven(t *testing.T) {
	c := dial(t, "127.0.0.1:1")
	q := Float32(make([]float32, 8), 1, 1, 1, 8)
	_, _, err := c.ApplyRope(context.Background(), ApplyRopeArgs{Rope: Spec(halfSplit), Layout: BSHD, Q: q}, Into(q, q))
	var e *Error
	if !errors.As(err, &e) || e.Code != codes.InvalidArgument || e.Field != "k_output" {
		t.Fatalf("got %v", err)
	}
	_, err = c.ConvertPairing(context.Background(), &posencv1.ConvertPairingRequest{}, q, Into(q, q))
	if !errors.As(err, &e) || e.Field != "Into" {
		t.Fatalf("got %v", err)
	}
}

// The test streams every layout and kind of positions in chunks of 200 bytes, which hold a few heads.
func TestStreamsInChunksAsTheFormulaSays(t *testing.T) {
	c := dial(t, startServer(t), WithStreamAbove(1))
	c.chunkBytes = 200
	const batch, tokens, heads, dim = 2, 7, 3, 8
	ids := make([]int32, batch*tokens)
	for i := range ids {
		ids[i] = int32(i*i + 5)
	}
	// A place is the sequence b and the token s of a head. The argument of bshd is the index of the head in memory.
	type place struct{ b, s int }
	bshd := func(h int) place { return place{h / (tokens * heads), h / heads % tokens} }
	cases := map[string]struct {
		layout    Layout
		shape     []int
		positions *Positions
		at        func(head int) float64
	}{
		"bshd, start": {BSHD, []int{batch, tokens, heads, dim}, StartAt(40),
			func(h int) float64 { return 40 + float64(bshd(h).s) }},
		"bhsd, start": {BHSD, []int{batch, heads, tokens, dim}, StartAt(-3),
			func(h int) float64 { return -3 + float64(h%tokens) }},
		"sbhd, starts": {SBHD, []int{tokens, batch, heads, dim}, StartsAt(100, 2000),
			func(h int) float64 { return []float64{100, 2000}[h/heads%batch] + float64(h/heads/batch) }},
		"bshd, ids by sequence": {BSHD, []int{batch, tokens, heads, dim}, IDs(Int32(ids, batch, tokens)),
			func(h int) float64 { return float64(ids[bshd(h).b*tokens+bshd(h).s]) }},
		"bhsd, ids for all": {BHSD, []int{batch, heads, tokens, dim}, IDs(Int32(ids[:tokens], tokens)),
			func(h int) float64 { return float64(ids[h%tokens]) }},
		"thd, packed": {THD, []int{batch * tokens, heads, dim}, Packed([]int64{0, 4, 4, 14}, 10, 0, 500),
			func(h int) float64 {
				if token := h / heads; token < 4 {
					return 10 + float64(token)
				} else {
					return 500 + float64(token-4)
				}
			}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			values := numbers(batch * tokens * heads * dim)
			q, k := tensorWith(t, DtypeFloat32, values, test.shape...), tensorWith(t, DtypeFloat32, values, test.shape...)
			chunks, last := 0, int64(0)
			q, k, err := c.ApplyRope(context.Background(), ApplyRopeArgs{
				Rope: Spec(halfSplit), Layout: test.layout, Positions: test.positions, Q: q, K: k,
			}, Progress(func(done, total int64) { chunks, last = chunks+1, total-done }))
			if err != nil {
				t.Fatal(err)
			}
			if chunks < 10 || last != 0 {
				t.Errorf("%d chunks, %d bytes left", chunks, last)
			}
			want := rotatedAll(values, dim, 10000, test.at)
			expectValues(t, q, want, tolerance(DtypeFloat32))
			expectValues(t, k, want, tolerance(DtypeFloat32))
		})
	}
}

// With a limit of 256 KiB, even the position ids are too large for one message.
func TestStreamsWhatTheServerDoesNotTakeAtOnce(t *testing.T) {
	const tokens = 1 << 17
	values, ids := numbers(tokens*16), make([]int32, tokens)
	for i := range ids {
		ids[i] = int32(i / 3)
	}
	want := rotatedAll(values, 16, 10000, func(h int) float64 { return float64(h / 3) })
	for _, limit := range []string{"4MiB", "256KiB"} {
		c := dial(t, startServer(t, "--max-request-bytes", limit))
		q := tensorWith(t, DtypeFloat32, values, 1, tokens, 1, 16) // 8 MiB
		chunks := 0
		_, _, err := c.ApplyRope(context.Background(), ApplyRopeArgs{
			Rope: Spec(halfSplit), Layout: BSHD, Positions: IDs(Int32(ids, tokens)), Q: q,
		}, Into(q), Progress(func(int64, int64) { chunks++ }))
		if err != nil || chunks < 2 {
			t.Fatalf("%s: %d chunks, %v", limit, chunks, err)
		}
		expectValues(t, q, want, tolerance(DtypeFloat32))
		ends := MoveTo(IDs(Int32(ids, tokens)), IDs(Int32(make([]int32, tokens), tokens)))
		k, err := c.Reposition(context.Background(), RepositionArgs{OldRope: Spec(halfSplit), Layout: BSHD, Movement: ends, K: q})
		if err != nil {
			t.Fatalf("%s: %v", limit, err)
		}
		expectValues(t, k, values, 2*tolerance(DtypeFloat32))
	}
}

func TestRepositionsKeysInPlaceAndInChunks(t *testing.T) {
	address := startServer(t)
	values := numbers(6 * 2 * 8)
	at := func(start float64) func(int) float64 { return func(h int) float64 { return start + float64(h/2) } }
	for _, options := range [][]DialOption{nil, {WithStreamAbove(1)}} {
		c := dial(t, address, options...)
		c.chunkBytes = 104
		rope, err := c.Rope(context.Background(), Spec(halfSplit))
		if err != nil {
			t.Fatal(err)
		}
		k := tensorWith(t, DtypeFloat64, rotatedAll(values, 8, 10000, at(20)), 1, 6, 2, 8)
		for _, movement := range []*Movement{ShiftBy(300), MoveTo(StartAt(320), StartAt(11))} {
			if err := rope.Reposition(context.Background(), BSHD, movement, k); err != nil {
				t.Fatal(err)
			}
		}
		expectValues(t, k, rotatedAll(values, 8, 10000, at(11)), 3*tolerance(DtypeFloat64))
	}
}

func TestServesManyGoroutines(t *testing.T) {
	c := dial(t, startServer(t))
	const calls = 16
	values := numbers(64 * 8 * 128) // 256 KiB, which are sent without a copy
	var wait sync.WaitGroup
	results, failed := make([]Tensor, calls), make([]error, calls)
	for i := range calls {
		wait.Add(1)
		go func() {
			defer wait.Done()
			q := tensorWith(t, DtypeFloat32, values, 1, 64, 8, 128)
			results[i], _, failed[i] = c.ApplyRope(context.Background(), ApplyRopeArgs{
				Rope: Spec(halfSplit), Layout: BSHD, Positions: StartAt(int64(i)), Q: q,
			}, Into(q))
		}()
	}
	wait.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		want := rotatedAll(values, 128, 10000, func(h int) float64 { return float64(i + h/8) })
		expectValues(t, results[i], want, tolerance(DtypeFloat32))
	}
}

func TestBuildsATableInOneMessageAndAsAStream(t *testing.T) {
	spec := &posencv1.RopeSpec{Pairing: HalfSplit, RotaryDim: 64}
	const rows = 3000
	want := [2][]float64{}
	for p := range rows {
		for i := range 32 {
			sin, cos := math.Sincos(float64(p) * math.Pow(10000, -float64(i)/32))
			want[0], want[1] = append(want[0], cos), append(want[1], sin)
		}
	}
	for _, flags := range [][]string{nil, {"--max-response-bytes", "256KiB"}} {
		c := dial(t, startServer(t, flags...))
		rope, err := c.Rope(context.Background(), Spec(spec))
		if err != nil {
			t.Fatal(err)
		}
		table, err := rope.Table(context.Background(), rows)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(table.Cos.Shape(), []int{rows, 32}) {
			t.Fatalf("shape %v", table.Cos.Shape())
		}
		expectValues(t, table.Cos, want[0], math.Ldexp(1, -24))
		expectValues(t, table.Sin, want[1], math.Ldexp(1, -24))
	}
}

func TestPutsABiasOfManyTilesTogether(t *testing.T) {
	c := dial(t, startServer(t))
	const heads, queries, keys = 2, 9, 14
	bias, err := c.BuildBias(context.Background(), &posencv1.BuildBiasRequest{
		Bias:       &posencv1.Bias{Bias: &posencv1.Bias_Alibi{Alibi: &posencv1.Alibi{Heads: heads}}},
		QueryStart: 5, QueryLength: queries, KeyLength: keys, QueryTile: 4, KeyTile: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []float64
	for h := range heads {
		for i := range queries {
			for j := range keys {
				slope := math.Exp2(-8 * float64(h+1) / heads)
				want = append(want, -slope*math.Abs(float64(5+i-j)))
			}
		}
	}
	expectValues(t, bias, want, 0)
}
