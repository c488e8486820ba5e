package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	posenc "github.com/posenc/posenc/client/go"
	"github.com/posenc/posenc/client/go/posencv1"
)

// vector is a case of proto/testdata/conformance; see proto/testdata/README.md.
type vector struct {
	Name    string
	RPC     string
	Request json.RawMessage
	Expect  json.RawMessage
}

type expectation struct {
	Path   string
	Dtype  string
	Shape  []int64
	Values []any
	Bound  bound
}

type expectedError struct {
	Code          codes.Code
	Reason, Field string
}

// reply is a call's answer: a message, and separate tensors by their path.
type reply struct {
	message proto.Message
	tensors map[string]posenc.Tensor
}

func conformance(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("conformance: needs TARGET DIR")
	}
	client, err := posenc.NewClient(args[0])
	if err != nil {
		return err
	}
	defer client.Close()
	files, err := filepath.Glob(filepath.Join(args[1], "*.json"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("conformance: no vectors in %s", args[1])
	}
	failed := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var vectors []vector
		if err := json.Unmarshal(text, &vectors); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		family := strings.TrimSuffix(filepath.Base(file), ".json")
		for _, v := range vectors {
			failed += report(family, v.Name, replay(client, v))
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d cases failed", failed)
	}
	return nil
}

// report prints a case's line, and returns 1 if it failed.
func report(family, name string, err error) int {
	if err == nil {
		fmt.Printf("%s\t%s\tok\t\n", family, name)
		return 0
	}
	fmt.Printf("%s\t%s\tfail\t%s\n", family, name, strings.NewReplacer("\n", " ", "\t", " ").Replace(err.Error()))
	return 1
}

func replay(client *posenc.Client, v vector) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := call(ctx, client, v)
	if bytes.HasPrefix(v.Expect, []byte("{")) {
		var expected expectedError
		if failed := json.Unmarshal(v.Expect, &expected); failed != nil {
			return failed
		}
		return checkError(err, expected)
	}
	if err != nil {
		return err
	}
	var expected []expectation
	decoder := json.NewDecoder(bytes.NewReader(v.Expect))
	decoder.UseNumber() // a float64 cannot hold 20 digits
	if err := decoder.Decode(&expected); err != nil {
		return err
	}
	if len(expected) == 0 {
		return fmt.Errorf("expects nothing")
	}
	for _, e := range expected {
		if err := e.check(answer); err != nil {
			return fmt.Errorf("%s: %w", e.Path, err)
		}
	}
	return nil
}

func checkError(err error, expected expectedError) error {
	var e *posenc.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("got %v; expected %v", err, expected.Code)
	}
	reason := strings.TrimPrefix(expected.Reason, "ERROR_REASON_")
	if e.Code != expected.Code || e.Reason != reason || e.Field != expected.Field {
		return fmt.Errorf("got %v %s %s; expected %v %s %s: %v",
			e.Code, e.Reason, e.Field, expected.Code, reason, expected.Field, e)
	}
	return nil
}

// call makes a vector's call through the client's own method, or through the
// generated method if a tensor is malformed.
func call(ctx context.Context, c *posenc.Client, v vector) (reply, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("posenc.v1." + v.RPC + "Request"))
	if err != nil {
		return reply{}, fmt.Errorf("rpc %s is not known here", v.RPC)
	}
	message := kind.New().Interface()
	if err := protojson.Unmarshal(v.Request, message); err != nil {
		return reply{}, fmt.Errorf("the request: %w", err)
	}
	switch request := message.(type) {
	case *posencv1.ResolveRopeRequest:
		m, err := c.ResolveRope(ctx, request)
		return reply{message: m}, err
	case *posencv1.AnalyzeRopeRequest:
		m, err := c.AnalyzeRope(ctx, request)
		return reply{message: m}, err
	case *posencv1.DiagnoseRopeRequest:
		m, err := c.DiagnoseRope(ctx, request)
		return reply{message: m}, err
	case *posencv1.BuildPositionsRequest:
		m, err := c.BuildPositions(ctx, request)
		return reply{message: m}, err
	case *posencv1.BuildTableRequest:
		table, err := c.BuildTable(ctx, request)
		if err != nil {
			return reply{}, err
		}
		return reply{
			&posencv1.BuildTableResponse{Amplitude: table.Amplitude},
			map[string]posenc.Tensor{"cos": table.Cos, "sin": table.Sin, "table": table.Table},
		}, nil
	case *posencv1.BuildBiasRequest:
		bias, err := c.BuildBias(ctx, request)
		return reply{tensors: map[string]posenc.Tensor{"tile": bias}}, err
	case *posencv1.ApplyRopeRequest:
		return applyRope(ctx, c, request)
	case *posencv1.RepositionRequest:
		return reposition(ctx, c, request)
	case *posencv1.AddEncodingRequest:
		x, fits := take(&request.X)
		if !fits {
			m, err := c.Stub().AddEncoding(ctx, request)
			return reply{message: m}, err
		}
		out, err := c.AddEncoding(ctx, request, x)
		return reply{tensors: map[string]posenc.Tensor{"x": out}}, err
	case *posencv1.ScoreRelativeRequest:
		sent := proto.CloneOf(request)
		q, qFits := take(&sent.Q)
		k, kFits := take(&sent.K)
		if !qFits || !kFits {
			m, err := c.Stub().ScoreRelative(ctx, request)
			return reply{message: m}, err
		}
		out, err := c.ScoreRelative(ctx, sent, q, k)
		return reply{tensors: map[string]posenc.Tensor{"scores": out}}, err
	case *posencv1.ConvertPairingRequest:
		weight, fits := take(&request.Weight)
		if !fits {
			m, err := c.Stub().ConvertPairing(ctx, request)
			return reply{message: m}, err
		}
		out, err := c.ConvertPairing(ctx, request, weight)
		return reply{tensors: map[string]posenc.Tensor{"weight": out}}, err
	default:
		return reply{}, fmt.Errorf("rpc %s is not known here", v.RPC)
	}
}

func applyRope(ctx context.Context, c *posenc.Client, request *posencv1.ApplyRopeRequest) (reply, error) {
	sent := proto.CloneOf(request)
	q, qFits := take(&sent.Q)
	k, kFits := take(&sent.K)
	if !qFits || !kFits {
		m, err := c.Stub().ApplyRope(ctx, request)
		return reply{message: m}, err
	}
	outQ, outK, err := c.ApplyRope(ctx, posenc.ApplyRopeArgs{
		Rope: posenc.Source(request.GetRope()), Positions: request.GetPositions(), Layout: request.GetLayout(),
		Direction: request.GetDirection(), QueryScale: request.GetQueryScale(), Saturation: request.GetSaturation(), Q: q, K: k,
	})
	if err == nil {
		err = applyByStream(ctx, c, request, []posenc.Tensor{q, k}, []posenc.Tensor{outQ, outK})
	}
	return reply{tensors: map[string]posenc.Tensor{"q": outQ, "k": outK}}, err
}

func reposition(ctx context.Context, c *posenc.Client, request *posencv1.RepositionRequest) (reply, error) {
	sent := proto.CloneOf(request)
	k, fits := take(&sent.K)
	if !fits {
		m, err := c.Stub().Reposition(ctx, request)
		return reply{message: m}, err
	}
	out, err := c.Reposition(ctx, posenc.RepositionArgs{
		OldRope: posenc.Source(request.GetOldRope()), NewRope: posenc.Source(request.GetNewRope()),
		Movement: request.GetMovement(), Layout: request.GetLayout(), Cache: request.GetCache(),
		Saturation: request.GetSaturation(), BlockFormat: request.GetBlockFormat(), K: k,
	})
	if err == nil {
		err = repositionByStream(ctx, c, request, []posenc.Tensor{k}, []posenc.Tensor{out})
	}
	return reply{tensors: map[string]posenc.Tensor{"k": out}}, err
}

// take removes a tensor from a request, and returns it as bytes. It returns
// false for a malformed tensor (no type, both bytes and values, or a number of
// elements that does not fit its shape). Such a tensor stays in the request,
// because a posenc.Tensor cannot be malformed in these ways.
func take(field **posencv1.Tensor) (posenc.Tensor, bool) {
	m := *field
	if m == nil {
		return posenc.Tensor{}, true
	}
	count, shape := 1, []int(nil)
	for _, extent := range m.GetShape() {
		count *= int(extent)
		shape = append(shape, int(extent))
	}
	if len(m.GetValues()) != count || len(m.GetData()) > 0 {
		return posenc.Tensor{}, false
	}
	data, known := encode(m.GetDtype(), m.GetValues())
	if !known {
		return posenc.Tensor{}, false
	}
	*field = nil
	return posenc.Bytes(m.GetDtype(), data, shape...), true
}
