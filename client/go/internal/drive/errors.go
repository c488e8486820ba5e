package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	posenc "github.com/posenc/posenc/client/go"
	"github.com/posenc/posenc/client/go/internal/elements"
	"github.com/posenc/posenc/client/go/posencv1"
)

// errorCase is a case of proto/testdata/client_errors.json.
type errorCase struct {
	Name    string
	Only    []string // languages that have the case; empty: all
	Server  string   // plain, tls, tokens, away, silent or old
	Options struct {
		TLS     bool
		CA      string // right or wrong
		Token   string // good, expired or unknown
		Timeout float64
	}
	Call      string // info, table or rotate
	Arguments struct {
		Shape  []int
		Dtype  string
		Layout json.RawMessage // null: send no layout
		Rope   json.RawMessage
		Start  *int64
		Rows   int64 // of a table
		IDs    []any
		// null: the call lacks this argument
		Positions, Q json.RawMessage
		Bytes        int // size of q; 0: the size that its shape requires
		Out          *struct {
			Shape []int
			Dtype string
			Of    string
		}
	}
	Expect struct {
		Code   string
		Reason *string
		Field  *string
		Text   []string
	}
}

func replayErrors(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("errors: needs TABLE ENVFILE")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var cases []errorCase
	if err := json.Unmarshal(text, &cases); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	if text, err = os.ReadFile(args[1]); err != nil {
		return err
	}
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[key] = strings.Trim(value, `"'`)
	}
	failed := 0
	for _, c := range cases {
		if len(c.Only) > 0 && !slices.Contains(c.Only, "go") {
			continue
		}
		failed += report("errors", c.Name, c.replay(env))
	}
	if failed > 0 || len(cases) == 0 {
		return fmt.Errorf("%d of %d cases failed", failed, len(cases))
	}
	return nil
}

func (c errorCase) replay(env map[string]string) error {
	err := c.call(env)
	if err == nil && c.Expect.Code == "OK" {
		return nil
	}
	var e *posenc.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("got %v; expected an *Error", err)
	}
	one := func(name string) bool {
		var code codes.Code
		return code.UnmarshalJSON([]byte(strconv.Quote(name))) == nil && code == e.Code
	}
	switch {
	case !slices.ContainsFunc(strings.Split(c.Expect.Code, "|"), one):
		return fmt.Errorf("code is %v; expected %s: %v", e.Code, c.Expect.Code, e)
	case c.Expect.Reason != nil && e.Reason != *c.Expect.Reason:
		return fmt.Errorf("reason is %q; expected %q: %v", e.Reason, *c.Expect.Reason, e)
	case c.Expect.Field != nil && e.Field != *c.Expect.Field:
		return fmt.Errorf("field is %q; expected %q: %v", e.Field, *c.Expect.Field, e)
	}
	for _, text := range c.Expect.Text {
		if !strings.Contains(e.Error(), text) {
			return fmt.Errorf("text has no %q: %v", text, e)
		}
	}
	return nil
}

func (c errorCase) call(env map[string]string) error {
	var options []posenc.DialOption
	switch {
	case c.Options.CA == "right":
		options = append(options, posenc.WithTLS(posenc.TLS{CAFile: env["CA"]}))
	case c.Options.CA == "wrong":
		options = append(options, posenc.WithTLS(posenc.TLS{CAFile: env["WRONG_CA"]}))
	case c.Options.TLS:
		options = append(options, posenc.WithTLS(posenc.TLS{}))
	}
	if c.Options.Token != "" {
		options = append(options, posenc.WithToken(env["TOKEN_"+strings.ToUpper(c.Options.Token)]))
	}
	if c.Options.Timeout > 0 {
		options = append(options, posenc.WithTimeout(time.Duration(c.Options.Timeout*float64(time.Second))))
	}
	client, err := posenc.NewClient(env[strings.ToUpper(c.Server)], options...)
	if err != nil {
		return err
	}
	defer client.Close()
	switch c.Call {
	case "info":
		_, err := client.GetServerInfo(context.Background())
		return err
	case "table":
		return c.table(client)
	case "rotate":
		return c.rotate(client)
	}
	return fmt.Errorf("%q is no call", c.Call)
}

func (c errorCase) table(client *posenc.Client) error {
	var preset string
	if err := json.Unmarshal(c.Arguments.Rope, &preset); err != nil {
		return err
	}
	rope := &posencv1.RopeSource{Source: &posencv1.RopeSource_Preset{Preset: preset}}
	_, err := client.BuildTable(context.Background(), &posencv1.BuildTableRequest{
		Encoding:  &posencv1.BuildTableRequest_Rope{Rope: rope},
		Positions: &posencv1.Positions{Kind: &posencv1.Positions_Start{Start: 0}},
		Rows:      c.Arguments.Rows,
	})
	return err
}

func (c errorCase) rotate(client *posenc.Client) error {
	a := c.Arguments
	if a.Shape == nil {
		a.Shape = []int{1, 4, 2, 8}
	}
	if a.Dtype == "" {
		a.Dtype = "float32"
	}
	layout := "bshd"
	if a.Layout != nil {
		layout = strings.Trim(string(a.Layout), `"`)
	}
	if a.Rope == nil {
		a.Rope = json.RawMessage(`{"pairing": "half_split"}`)
	}
	positions := posenc.StartAt(0)
	if a.Start != nil {
		positions = posenc.StartAt(*a.Start)
	}
	if a.IDs != nil {
		ids := make([]float64, len(a.IDs))
		for i, id := range a.IDs {
			ids[i] = math.NaN()
			if number, ok := id.(float64); ok {
				ids[i] = number
			}
		}
		positions = posenc.IDs(posenc.Float64(ids, len(ids)))
	}
	if string(a.Positions) == "null" {
		positions = nil
	}
	rope := posenc.SpecJSON(string(a.Rope))
	var preset *string
	if json.Unmarshal(a.Rope, &preset) == nil {
		rope = posenc.RopeSource{}
		if preset != nil {
			rope = posenc.Preset(*preset)
		}
	}
	q := zeros(a.Dtype, a.Shape, a.Bytes)
	if string(a.Q) == "null" {
		q = posenc.Tensor{}
	}
	var options []posenc.Option
	if out := a.Out; out != nil {
		if out.Shape == nil {
			out.Shape = a.Shape
		}
		if out.Dtype == "" {
			out.Dtype = a.Dtype
		}
		memory := []posenc.Tensor{zeros(out.Dtype, out.Shape, 0)}
		if out.Of == "k" {
			memory = []posenc.Tensor{{}, memory[0]}
		}
		options = append(options, posenc.Into(memory...))
	}
	_, _, err := client.ApplyRope(context.Background(), posenc.ApplyRopeArgs{
		Rope: rope, Positions: positions, Q: q,
		Layout: posenc.Layout(posencv1.Layout_value["LAYOUT_"+strings.ToUpper(layout)]),
	}, options...)
	return err
}

// zeros makes a tensor of `bytes` zeros. If bytes is 0, the size follows from the shape.
func zeros(name string, shape []int, bytes int) posenc.Tensor {
	dtype := posenc.Dtype(posencv1.Dtype_value["DTYPE_"+strings.ToUpper(name)])
	if bytes == 0 {
		bytes = elements.Size(dtype)
		for _, extent := range shape {
			bytes *= extent
		}
	}
	return posenc.Bytes(dtype, make([]byte, max(bytes, 0)), shape...)
}
