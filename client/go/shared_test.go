package posenc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/posenc/posenc/client/go/posencv1"
)

// startSharing starts a server that shares memory with callers on its socket. It returns the
// socket, the server's other address, and the prefix of its files in /dev/shm.
func startSharing(t *testing.T, flags ...string) (socket, address, prefix string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "posenc") // t.TempDir() may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	socket = "unix:" + filepath.Join(folder, "socket")
	prefix = "posenc-test-" + filepath.Base(folder) + "-"
	address = startServer(t, append(flags, "--listen", socket, "--shared-memory-prefix", "/dev/shm/"+prefix)...)
	t.Cleanup(func() {
		if left := sharedFiles(t, prefix); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return socket, address, prefix
}

func sharedFiles(t *testing.T, prefix string) []string {
	t.Helper()
	found, err := filepath.Glob("/dev/shm/" + prefix + "*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func regionOf(t *testing.T, c *Client, bytes int64) *SharedRegion {
	t.Helper()
	region, err := c.SharedRegion(context.Background(), bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { region.Close() })
	return region
}

// tensorIn makes a copy of the tensor `like` in a region.
func tensorIn(t *testing.T, region *SharedRegion, offset int64, like Tensor) Tensor {
	t.Helper()
	tensor, err := region.Tensor(like.Dtype(), offset, like.Shape()...)
	if err != nil {
		t.Fatal(err)
	}
	copy(tensor.Bytes(), like.Bytes())
	return tensor
}

func TestRotatesEveryDtypeWhereItLiesInSharedMemory(t *testing.T) {
	socket, _, _ := startSharing(t)
	c := dial(t, socket)
	ctx := context.Background()
	rope, err := c.Rope(ctx, Spec(halfSplit))
	if err != nil {
		t.Fatal(err)
	}
	values := numbers(2 * 3 * 2 * 8)
	for _, dtype := range []Dtype{DtypeFloat32, DtypeFloat64, DtypeFloat16, DtypeBFloat16} {
		sent := tensorWith(t, dtype, values, 2, 3, 2, 8)
		region := regionOf(t, c, 2*int64(len(sent.Bytes())))
		q := tensorIn(t, region, 0, sent)
		k := tensorIn(t, region, int64(len(sent.Bytes())), sent)
		if region.Name() == "" {
			t.Fatal("no memory is shared")
		}
		if err := rope.Apply(ctx, BSHD, StartAt(1000), q, k); err != nil {
			t.Fatal(err)
		}
		want := rotatedAll(values, 8, 10000, func(head int) float64 { return 1000 + float64(head/2%3) })
		expectValues(t, q, want, tolerance(dtype))
		if string(q.Bytes()) != string(k.Bytes()) {
			t.Error("q and k differ")
		}
	}
}

func TestInputsAndResultsMayLieInDifferentMemory(t *testing.T) {
	socket, _, _ := startSharing(t)
	c := dial(t, socket)
	ctx := context.Background()
	sent := tensorWith(t, DtypeFloat32, numbers(2*3*2*8), 2, 3, 2, 8)
	args := RepositionArgs{OldRope: Spec(halfSplit), Layout: BSHD, Movement: ShiftBy(-5), K: sent}
	want, err := c.Reposition(ctx, args)
	if err != nil {
		t.Fatal(err)
	}
	region := regionOf(t, c, 2*int64(len(sent.Bytes())))
	view, own := tensorIn(t, region, 0, sent), tensorWith(t, DtypeFloat32, numbers(2*3*2*8), 2, 3, 2, 8)
	other := tensorIn(t, region, int64(len(sent.Bytes())), sent)
	for i, pair := range [][2]Tensor{{view, other}, {view, own}, {sent, other}, {view, {}}} {
		args.K = pair[0]
		got, err := c.Reposition(ctx, args, Into(pair[1]))
		if err != nil || string(got.Bytes()) != string(want.Bytes()) || string(view.Bytes()) != string(sent.Bytes()) {
			t.Errorf("pair %d: %v", i, err)
		}
		if pair[1].Given() && &got.Bytes()[0] != &pair[1].Bytes()[0] {
			t.Errorf("pair %d: the result is elsewhere", i)
		}
		if (got.m.GetShared() != nil) != (pair[1].m.GetShared() != nil) {
			t.Errorf("pair %d: the result does not know its place", i)
		}
		clear(pair[1].Bytes())
	}
}

func TestOtherTensorsGoByTheirPlaceToo(t *testing.T) {
	socket, _, _ := startSharing(t)
	c := dial(t, socket)
	ctx := context.Background()
	sent := tensorWith(t, DtypeFloat32, numbers(2*3*4*8), 2, 3, 4, 8)
	table := &posencv1.Tensor{Dtype: DtypeFloat32, Shape: []int64{3, 8}, Data: make([]byte, 3*8*4)}
	score := &posencv1.ScoreRelativeRequest{Score: &posencv1.RelativeScore{Score: &posencv1.RelativeScore_Shaw{
		Shaw: &posencv1.ShawScore{KeyTable: table}}}}
	want, err := c.ScoreRelative(ctx, score, sent, sent)
	if err != nil {
		t.Fatal(err)
	}
	region := regionOf(t, c, 4096)
	view := tensorIn(t, region, 0, sent)
	out := tensorIn(t, region, 2048, want)
	clear(out.Bytes())
	if _, err = c.ScoreRelative(ctx, score, view, view, Into(out)); err != nil || string(out.Bytes()) != string(want.Bytes()) {
		t.Errorf("scores: %v", err)
	}
	if score.GetScoresOutput() != nil {
		t.Error("the caller's request was changed")
	}
	small, _ := region.Tensor(DtypeFloat32, 2048, 1)
	if _, err = c.ScoreRelative(ctx, score, view, view, Into(small)); err == nil {
		t.Error("an output that is too small was taken")
	}
	add := &posencv1.AddEncodingRequest{Encoding: &posencv1.AbsoluteEncoding{Encoding: &posencv1.AbsoluteEncoding_Sinusoidal{
		Sinusoidal: &posencv1.Sinusoidal{Dim: 8, Order: posencv1.SinusoidalOrder_SINUSOIDAL_ORDER_INTERLEAVED}}}, Positions: StartAt(3)}
	rows := tensorWith(t, DtypeFloat32, numbers(5*8), 5, 8)
	if want, err = c.AddEncoding(ctx, add, rows); err != nil {
		t.Fatal(err)
	}
	held := tensorIn(t, region, 0, rows)
	if got, err := c.AddEncoding(ctx, add, held, Into(held)); err != nil || string(held.Bytes()) != string(want.Bytes()) || got.m.GetShared() != held.m.GetShared() {
		t.Errorf("AddEncoding in place: %v", err)
	}
	// The result is twice as large as x. Bytes behind an output that is too small must not change.
	add.Combination = posencv1.Combination_COMBINATION_CONCATENATE
	behind, _ := region.Tensor(DtypeInt32, 2048, 40)
	for i := range behind.Int32s() {
		behind.Int32s()[i] = 7
	}
	small, _ = region.Tensor(DtypeFloat32, 2048-5*8*4, 5, 8)
	if _, err := c.AddEncoding(ctx, add, held, Into(small)); err == nil || behind.Int32s()[0] != 7 {
		t.Errorf("a concatenation into too little memory: %v, and %d behind it", err, behind.Int32s()[0])
	}
	// The conversion moves rows, so the output must not overlap the input.
	convert := &posencv1.ConvertPairingRequest{OldPairing: Interleaved, NewPairing: HalfSplit, Heads: 1}
	weight := tensorIn(t, region, 0, tensorWith(t, DtypeFloat32, numbers(64), 8, 8))
	var e *Error
	if _, err := c.ConvertPairing(ctx, convert, weight, Into(weight)); !errors.As(err, &e) || e.Field != "weight_output" {
		t.Errorf("ConvertPairing in place: %v", err)
	}
}

func TestWhereTheServerSharesNothingTheSameCodeSendsBytes(t *testing.T) {
	_, address, prefix := startSharing(t)
	c := dial(t, address)
	values := numbers(3 * 2 * 8)
	region := regionOf(t, c, 3*2*8*4)
	if region.Name() != "" || len(sharedFiles(t, prefix)) > 0 {
		t.Errorf("shares %q", region.Name())
	}
	q := tensorIn(t, region, 0, tensorWith(t, DtypeFloat32, values, 1, 3, 2, 8))
	_, _, err := c.ApplyRope(context.Background(), ApplyRopeArgs{Rope: Spec(halfSplit), Positions: StartAt(5), Layout: BSHD, Q: q}, Into(q))
	if err != nil {
		t.Fatal(err)
	}
	want := rotatedAll(values, 8, 10000, func(head int) float64 { return 5 + float64(head/2) })
	expectValues(t, q, want, tolerance(DtypeFloat32))
}

// refusing is a server that fails calls that name shared memory, and answers other calls with their
// own tensors.
func refusing(t *testing.T, failure error) (target string, calls *[]*posencv1.ApplyRopeRequest) {
	var mutex sync.Mutex
	calls = &[]*posencv1.ApplyRopeRequest{}
	info := &posencv1.SharedMemoryInfo{Directory: "/dev/shm", Prefix: "posenc-test-go-"}
	return startFake(t, &fake{
		info: func(context.Context) (*posencv1.GetServerInfoResponse, error) {
			return &posencv1.GetServerInfoResponse{SharedMemory: info}, nil
		},
		apply: func(_ context.Context, r *posencv1.ApplyRopeRequest) (*posencv1.ApplyRopeResponse, error) {
			mutex.Lock()
			defer mutex.Unlock()
			*calls = append(*calls, r)
			if r.GetQ().GetShared() != nil {
				return nil, failure
			}
			return &posencv1.ApplyRopeResponse{Q: r.GetQ()}, nil
		},
	}), calls
}

func TestAServerThatRefusesPlacesGetsBytes(t *testing.T) {
	for _, code := range []codes.Code{codes.Unimplemented, codes.PermissionDenied} {
		target, calls := refusing(t, failureWith(t, code, "ERROR_REASON_SHARED_MEMORY_UNAVAILABLE"))
		c := dial(t, target)
		region := regionOf(t, c, 64)
		q := tensorIn(t, region, 0, tensorWith(t, DtypeFloat32, numbers(8), 1, 1, 1, 8))
		args := ApplyRopeArgs{Rope: Spec(halfSplit), Positions: StartAt(5), Layout: BSHD, Q: q}
		if _, _, err := c.ApplyRope(context.Background(), args, Into(q)); err != nil {
			t.Error(err)
		}
		if len(*calls) != 2 || len((*calls)[1].GetQ().GetData()) != 32 || (*calls)[1].GetQOutput() != nil {
			t.Errorf("the server got %v", *calls)
		}
	}
}

func TestACallInPlaceIsSentOnceAndItsErrorSaysWhatToDo(t *testing.T) {
	target, calls := refusing(t, status.Error(codes.Unavailable, "gone"))
	c := dial(t, target)
	region := regionOf(t, c, 64)
	q := tensorIn(t, region, 0, tensorWith(t, DtypeFloat32, numbers(8), 1, 1, 1, 8))
	other := tensorIn(t, region, 32, q)
	args := ApplyRopeArgs{Rope: Spec(halfSplit), Positions: StartAt(5), Layout: BSHD, Q: q}
	_, _, err := c.ApplyRope(context.Background(), args, Into(q))
	if status.Code(err) != codes.Unavailable || !strings.Contains(fmt.Sprint(err), "q may have been rotated by then") || len(*calls) != 1 {
		t.Errorf("in place: %v after %d calls", err, len(*calls))
	}
	_, _, err = c.ApplyRope(context.Background(), args, Into(other))
	if status.Code(err) != codes.Unavailable || strings.Contains(fmt.Sprint(err), "rotated by then") || len(*calls) != 5 {
		t.Errorf("out of place: %v after %d calls", err, len(*calls))
	}
}

// Files with the directory's group let containers of different users share a Kubernetes volume with an fsGroup.
func TestADirectoryThatGivesItsGroupGetsFilesOfTheGroup(t *testing.T) {
	socket, _, prefix := startSharing(t)
	directory := t.TempDir()
	if err := os.Chmod(directory, 0o770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	region, err := dial(t, socket).SharedRegion(context.Background(), 10000, RegionName(prefix+"group"), RegionDirectory(directory))
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	info, err := os.Stat(filepath.Join(directory, prefix+"group"))
	if err != nil || info.Mode().Perm() != 0o660 || info.Size() != 10000 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestRegionsAreFilesOfTheirFullSizeThatGoWhenClosed(t *testing.T) {
	socket, _, prefix := startSharing(t)
	c := dial(t, socket)
	ctx := context.Background()
	region, err := c.SharedRegion(ctx, 10000, RegionName(prefix+"named"))
	if err != nil || region.Name() != prefix+"named" {
		t.Fatal(err)
	}
	info, err := os.Stat("/dev/shm/" + prefix + "named")
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 10000 {
		t.Errorf("%v, %v", info, err)
	}
	q := tensorIn(t, region, 0, tensorWith(t, DtypeFloat32, numbers(8), 1, 1, 1, 8))
	var e *Error
	if _, err := c.SharedRegion(ctx, 8, RegionName(prefix+"named")); !errors.As(err, &e) || e.Field != "name" {
		t.Errorf("a name that is taken: %v", err)
	}
	if region.Close() != nil || region.Close() != nil || len(sharedFiles(t, prefix)) > 0 {
		t.Error("the file stays")
	}
	args := ApplyRopeArgs{Rope: Spec(halfSplit), Positions: StartAt(5), Layout: BSHD, Q: q}
	if _, _, err := c.ApplyRope(ctx, args); !errors.As(err, &e) || e.Code != codes.NotFound || !strings.HasPrefix(e.Field, "q.") {
		t.Errorf("a tensor of a closed region: %v", err)
	}
	args.Q = tensorWith(t, DtypeFloat32, numbers(8), 1, 1, 1, 8)
	if _, _, err := c.ApplyRope(ctx, args, Into(q)); !errors.As(err, &e) || e.Code != codes.NotFound || !strings.HasPrefix(e.Field, "q_output") {
		t.Errorf("an output of a closed region: %v", err)
	}
	if _, err := region.Tensor(DtypeFloat32, 0, 1); !errors.As(err, &e) || e.Field != "region" {
		t.Errorf("a closed region: %v", err)
	}
}

func TestRegionsAndViewsThatCannotBeAreErrorsThatNameTheField(t *testing.T) {
	socket, _, prefix := startSharing(t)
	c := dial(t, socket)
	for _, test := range []struct {
		field   string
		bytes   int64
		options []RegionOption
	}{
		{"bytes", 0, nil}, {"bytes", -1, nil}, {"bytes", 1 << 62, nil},
		{"name", 8, []RegionOption{RegionName("x")}},
		{"name", 8, []RegionOption{RegionName("..")}},
		{"name", 8, []RegionOption{RegionName(prefix + "/../x")}},
		{"name", 8, []RegionOption{RegionName(prefix + "\n")}},
		{"name", 8, []RegionOption{RegionName(prefix + strings.Repeat("x", 255))}},
		{"directory", 8, []RegionOption{RegionDirectory("/nowhere")}},
	} {
		var e *Error
		region, err := c.SharedRegion(context.Background(), test.bytes, test.options...)
		if region != nil || !errors.As(err, &e) || e.Field != test.field || e.Code != codes.InvalidArgument {
			t.Errorf("%v: %v", test, err)
		}
	}
	region := regionOf(t, c, 64)
	for _, test := range []struct {
		field  string
		dtype  Dtype
		offset int64
		shape  []int
	}{
		{"shape", DtypeFloat32, 0, []int{17}}, {"shape", DtypeFloat32, 4, []int{16}},
		{"shape", DtypeFloat32, 0, []int{-1, 4}}, {"shape", DtypeFloat32, 0, []int{1 << 40, 1 << 40}},
		{"shape", DtypeFloat32, 128, []int{0}},
		{"offset", DtypeFloat32, 2, []int{4}}, {"offset", DtypeFloat32, -4, []int{4}}, {"dtype", 99, 0, []int{4}},
	} {
		var e *Error
		if _, err := region.Tensor(test.dtype, test.offset, test.shape...); !errors.As(err, &e) || e.Field != test.field {
			t.Errorf("%v: %v", test, err)
		}
	}
	if _, err := region.Tensor(DtypeFloat32, 64, 0, 1<<40); err != nil {
		t.Error(err)
	}
}

// failureWith is an error with a reason, like the errors of the server.
func failureWith(t *testing.T, code codes.Code, reason string) error {
	t.Helper()
	s, err := status.New(code, "no").WithDetails(&errdetails.ErrorInfo{Reason: reason})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}
