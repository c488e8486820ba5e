package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	posenc "github.com/posenc/posenc/client/go"
	"github.com/posenc/posenc/client/go/posencv1"
)

// The warm-up lasts at least warmUp, and makes at least one call for every
// connection. The calls of the warm-up are not measured. The benchmarks of the
// other clients have the same warm-up; in Java and Node it lasts 6 s.
const (
	warmUp      = 2 * time.Second
	connections = 4
)

// A benchmark rotates q [1, tokens, 32, 128] of float32 into other memory.
type benchmark struct {
	tokens, calls int
	options       []posenc.DialOption
}

var benchmarks = map[string]benchmark{
	"unary1":    {64, 5, nil},
	"unary64":   {4096, 5, nil},
	"token1":    {1, 5, nil}, // shows the peak memory of the program itself
	"stream256": {16384, 2, []posenc.DialOption{posenc.WithStreamAbove(1)}},
}

func bench(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("bench: needs TARGET CASE")
	}
	b, known := benchmarks[args[1]]
	if !known {
		return fmt.Errorf("bench: no case %q", args[1])
	}
	client, err := posenc.NewClient(args[0], b.options...)
	if err != nil {
		return err
	}
	defer client.Close()
	q := make([]float32, b.tokens*32*128)
	for i := range q {
		q[i] = float32(i%1000)/500 - 1
	}
	out := slices.Clone(q)
	tensor := posenc.Float32(q, 1, b.tokens, 32, 128)
	result := posenc.Float32(out, 1, b.tokens, 32, 128)
	call := posenc.ApplyRopeArgs{
		Rope:      posenc.Spec(&posencv1.RopeSpec{Pairing: posenc.HalfSplit}),
		Positions: posenc.StartAt(0),
		Layout:    posenc.BSHD,
		Q:         tensor,
	}
	var took, seconds []float64
	for begin := time.Now(); len(seconds) < b.calls; {
		start := time.Now()
		if _, _, err := client.ApplyRope(context.Background(), call, posenc.Into(result)); err != nil {
			return err
		}
		took = append(took, time.Since(start).Seconds())
		if start.Sub(begin) >= warmUp && len(took) > connections {
			seconds = append(seconds, took[len(took)-1])
		}
	}
	slices.Sort(seconds)
	peak, err := peakBytes()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"client": "go", "case": args[1],
		"seconds": seconds[len(seconds)/2], "first_seconds": took[0],
		"peak_bytes": peak, "tensor_bytes": len(q) * 4,
	})
}

// peakBytes is this process's peak of resident memory.
func peakBytes() (int64, error) {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if kilobytes, found := strings.CutPrefix(lines.Text(), "VmHWM:"); found {
			n, err := strconv.ParseInt(strings.Fields(kilobytes)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status: has no VmHWM")
}
