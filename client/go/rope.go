package posenc

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/posenc/posenc/client/go/posencv1"
)

// RopeSource names a rotary encoding: by a preset, by a model's configuration, or by a complete specification.
type RopeSource struct {
	message *posencv1.RopeSource
	err     error
}

// SourceOption selects a part or an interpretation of a RopeSource.
type SourceOption func(*source)

type source = posencv1.RopeSource

// LayerType picks the layers of this type, such as "full_attention".
func LayerType(name string) SourceOption {
	return func(s *source) { s.Layer = &posencv1.RopeSource_LayerType{LayerType: name} }
}

// LayerIndex picks one layer, counted from 0.
func LayerIndex(index int) SourceOption {
	return func(s *source) { s.Layer = &posencv1.RopeSource_LayerIndex{LayerIndex: int32(index)} }
}

// SequenceLength is the length for length-dependent scalings.
func SequenceLength(n int64) SourceOption { return func(s *source) { s.SequenceLength = &n } }

// HeadDim is the width of the widest heads that are rotated. Set it if these heads are wider than the model's heads,
// for example if a head holds keys and values, or a latent row.
func HeadDim(channels int) SourceOption { return func(s *source) { s.HeadDim = int32(channels) } }

// Profile selects the project whose interpretation of a configuration applies.
func Profile(p posencv1.Profile) SourceOption { return func(s *source) { s.Profile = p } }

// ProfileVersion is a version of the profile's project, such as "0.21.0" of vLLM. The default is the newest version
// that the server knows.
func ProfileVersion(v string) SourceOption { return func(s *source) { s.ProfileVersion = v } }

// Part picks the text model, the vision tower or the audio encoder of a model.
func Part(part posencv1.ModelPart) SourceOption { return func(s *source) { s.Part = part } }

// Preset is the encoding that the server knows by this name. GetServerInfo lists the names.
func Preset(name string, options ...SourceOption) RopeSource {
	return Source(collect(&source{Source: &posencv1.RopeSource_Preset{Preset: name}}, options))
}

// ConfigJSON is the encoding that the text of a model's config.json describes.
func ConfigJSON(text string, options ...SourceOption) RopeSource {
	return Source(collect(&source{Source: &posencv1.RopeSource_ConfigJson{ConfigJson: text}}, options))
}

// ConfigFile is the encoding that a model's config.json describes. If the file cannot be read, calls with this source
// fail.
func ConfigFile(path string, options ...SourceOption) RopeSource {
	text, err := os.ReadFile(path)
	if err != nil {
		return RopeSource{err: wrongArgument("rope.config_json", "%w", err)}
	}
	return ConfigJSON(string(text), options...)
}

// Spec is the encoding that a specification describes.
func Spec(spec *posencv1.RopeSpec, options ...SourceOption) RopeSource {
	return Source(collect(&source{Source: &posencv1.RopeSource_Spec{Spec: spec}}, options))
}

// Source is the encoding that a RopeSource of the contract describes, such as the field rope of a BuildTableRequest.
func Source(message *posencv1.RopeSource) RopeSource { return RopeSource{message: message} }

// SpecJSON is the encoding that a specification in proto3's JSON describes. Enum values may be short:
// {"pairing": "half_split"}.
func SpecJSON(text string, options ...SourceOption) RopeSource {
	var fields any
	spec := &posencv1.RopeSpec{}
	err := json.Unmarshal([]byte(text), &fields)
	if err == nil {
		lengthen(fields, spec.ProtoReflect().Descriptor())
		long, _ := json.Marshal(fields) // cannot fail: the fields come from JSON
		err = protojson.Unmarshal(long, spec)
	}
	if err != nil {
		return RopeSource{err: wrongArgument("rope.spec", "%w", err)}
	}
	return Spec(spec, options...)
}

// lengthen writes out the names of enum values: "half_split" becomes "PAIRING_HALF_SPLIT".
func lengthen(value any, descriptor protoreflect.MessageDescriptor) {
	fields, _ := value.(map[string]any)
	for name, value := range fields {
		field := cmp.Or(descriptor.Fields().ByTextName(name), descriptor.Fields().ByJSONName(name))
		switch {
		case field == nil: // protojson reports it
		case field.Message() != nil:
			lengthen(value, field.Message())
		case field.Enum() != nil:
			short, _ := value.(string)
			values := field.Enum().Values()
			prefix := strings.TrimSuffix(string(values.Get(0).Name()), "UNSPECIFIED")
			if long := prefix + strings.ToUpper(short); values.ByName(protoreflect.Name(long)) != nil {
				fields[name] = long
			}
		}
	}
}

// Message returns the source for generated requests, or nil if its file could not be read.
func (s RopeSource) Message() *posencv1.RopeSource { return s.message }

// Rope is a rotary encoding that the server has resolved once. Its calls send the resolved specification, not a
// configuration.
type Rope struct {
	// Resolved is the server's answer: head_dim, frequencies, attention factor, assumptions, warnings.
	Resolved *posencv1.ResolveRopeResponse

	client *Client
	source RopeSource
}

// Rope resolves an encoding. If a specification has no rotary_dim, it is used unchanged, without a call, and Resolved
// is nil.
func (c *Client) Rope(ctx context.Context, source RopeSource, options ...Option) (*Rope, error) {
	if source.err != nil {
		return nil, source.err
	}
	if spec := source.message.GetSpec(); spec != nil && spec.GetRotaryDim() == 0 && !spec.GetNope() {
		return &Rope{client: c, source: source}, nil
	}
	resolved, err := c.ResolveRope(ctx, &posencv1.ResolveRopeRequest{Rope: source.message}, options...)
	if err != nil {
		return nil, err
	}
	spec := Spec(resolved.GetSpec())
	spec.message.SequenceLength = source.message.SequenceLength
	spec.message.HeadDim = resolved.GetHeadDim()
	return &Rope{Resolved: resolved, client: c, source: spec}, nil
}

// Source returns the resolved specification, for other calls.
func (r *Rope) Source() RopeSource { return r.source }

// Spec returns the resolved specification.
func (r *Rope) Spec() *posencv1.RopeSpec { return r.source.message.GetSpec() }

// Apply rotates q and k, in place unless Into names other memory. Either q or k may be the zero Tensor. FP8 needs
// Saturate.
func (r *Rope) Apply(ctx context.Context, layout Layout, positions *Positions, q, k Tensor, options ...Option) error {
	args := ApplyRopeArgs{Rope: r.source, Layout: layout, Positions: positions, Q: q, K: k}
	_, _, err := r.client.ApplyRope(ctx, args, append([]Option{Into(q, k)}, options...)...) // a later option overrides an earlier one
	return err
}

// Reposition moves rotated keys, in place unless the option Into names other memory.
func (r *Rope) Reposition(ctx context.Context, layout Layout, movement *Movement, k Tensor, options ...Option) error {
	args := RepositionArgs{OldRope: r.source, Layout: layout, Movement: movement, K: k}
	_, err := r.client.Reposition(ctx, args, append([]Option{Into(k)}, options...)...)
	return err
}

// Table builds the cosines and sines of positions 0, 1, ... as tensors [rows, pairs] of float32. BuildTable has more
// options.
func (r *Rope) Table(ctx context.Context, rows int, options ...Option) (*Table, error) {
	return r.client.BuildTable(ctx, &posencv1.BuildTableRequest{
		Encoding:  &posencv1.BuildTableRequest_Rope{Rope: r.source.message},
		Positions: StartAt(0),
		Rows:      int64(rows),
	}, options...)
}
