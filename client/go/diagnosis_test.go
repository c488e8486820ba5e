package posenc

import (
	"context"
	"errors"
	"math"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/posenc/posenc/client/go/posencv1"
)

// Two names for one key: transformers reads rope_type, mlx-lm reads type.
const twoTypes = `{"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "rope_theta": 500000.0,
	"max_position_embeddings": 131072, "rope_scaling":
	{"rope_type": "yarn", "type": "linear", "factor": 4.0, "original_max_position_embeddings": 32768}}`

func TestDiagnosesAConfigurationThatReadersTakeDifferently(t *testing.T) {
	c := dial(t, startServer(t))
	config := &posencv1.ModelDescription{Kind: posencv1.DescriptionKind_DESCRIPTION_KIND_CONFIG, Text: twoTypes}
	request := &posencv1.DiagnoseRopeRequest{Inputs: []*posencv1.ModelDescription{config}, Readers: []string{"hf", "mlx"}, Length: 4096}
	got, err := c.DiagnoseRope(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	if got.GetLength() != 4096 || got.GetSummary().GetError() != 1 || len(got.GetFindings()) == 0 {
		t.Fatalf("got %v", got)
	}
	finding := got.GetFindings()[0]
	if finding.GetId() != "config.type-conflict" || finding.GetSeverity() != posencv1.Severity_SEVERITY_ERROR || finding.GetFix() == "" {
		t.Errorf("got %v", finding)
	}
	if len(finding.GetReaders()) != 1 || finding.GetReaders()[0].GetName() != "mlx-lm" {
		t.Fatalf("readers: %v", finding.GetReaders())
	}
	// YaRN's attention factor (arXiv:2309.00071). A linear scaling has no attention factor.
	if ratio := finding.GetReaders()[0].GetAmplitudeRatio(); math.Abs(ratio*(0.1*math.Log(4)+1)-1) > 1e-15 {
		t.Errorf("amplitude ratio %v", ratio)
	}
}

func TestADiagnosisNamesWhatItCannotTake(t *testing.T) {
	c := dial(t, startServer(t))
	config := &posencv1.ModelDescription{Kind: posencv1.DescriptionKind_DESCRIPTION_KIND_CONFIG, Text: twoTypes}
	for field, request := range map[string]*posencv1.DiagnoseRopeRequest{
		"inputs":         {},
		"inputs[0].kind": {Inputs: []*posencv1.ModelDescription{{Text: twoTypes}}},
		"readers[0]":     {Inputs: []*posencv1.ModelDescription{config}, Readers: []string{"nobody"}},
	} {
		var e *Error
		if _, err := c.DiagnoseRope(context.Background(), request); !errors.As(err, &e) || e.Code != codes.InvalidArgument || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	// Mistakes in a description do not make the call fail: the answer reports them.
	request := &posencv1.DiagnoseRopeRequest{Inputs: []*posencv1.ModelDescription{{Kind: config.Kind, Text: "{"}, config}}
	got, err := c.DiagnoseRope(context.Background(), request)
	if err != nil || len(got.GetInputs()) != 2 || got.GetInputs()[0].GetUnreadable() == "" || got.GetInputs()[1].GetUnreadable() != "" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestTellsWhatIsLeftOfAScoreUnderAnotherEncoding(t *testing.T) {
	c := dial(t, startServer(t))
	ctx := context.Background()
	base := func(theta float64) *posencv1.RopeSource {
		return Spec(&posencv1.RopeSpec{Pairing: HalfSplit, RotaryDim: 8, RopeTheta: &theta}).Message()
	}
	// kept(r) = mean over pairs of cos(r |w - w'|), with w = theta^(-i/4).
	kept := func(distance int) float64 {
		sum := 0.0
		for i := range 4 {
			sum += math.Cos(float64(distance) * (math.Pow(10000, -float64(i)/4) - math.Pow(500000, -float64(i)/4)))
		}
		return sum / 4
	}
	analysis, err := c.AnalyzeRope(ctx, &posencv1.AnalyzeRopeRequest{Rope: base(10000), CompareWith: base(500000), MaxDistance: 40})
	if err != nil || len(analysis.GetKept()) != 41 {
		t.Fatalf("got %v, %v", analysis, err)
	}
	first := -1
	for r, got := range analysis.GetKept() {
		if math.Abs(got-kept(r)) > 1e-14 {
			t.Errorf("kept at %d is %v; want %v", r, got, kept(r))
		}
		if first < 0 && kept(r) < 0.9 {
			first = r
		}
	}
	resolved, err := c.ResolveRope(ctx, &posencv1.ResolveRopeRequest{Rope: base(10000), CompareWith: base(500000), Length: 40})
	difference := resolved.GetDifference()
	if err != nil || difference.GetLength() != 40 || math.Abs(difference.GetKeptAtLength()-kept(40)) > 1e-14 || difference.GetFirstDistance() != int64(first) {
		t.Errorf("got %v, %v; want %v from %d on", difference, err, kept(40), first)
	}
	var e *Error
	if _, err := c.ResolveRope(ctx, &posencv1.ResolveRopeRequest{Rope: base(10000), Length: 40}); !errors.As(err, &e) || e.Field != "length" {
		t.Errorf("a length without a comparison: %v", err)
	}
}
