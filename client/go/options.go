package posenc

import (
	"os"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The default of WithMaxMessageBytes, which is also the server's.
const defaultMaxMessageBytes = 512 << 20

type dialOptions struct {
	timeout          time.Duration
	stuckTimeout     time.Duration
	maxMessageBytes  int64
	streamAboveBytes int64
	bulkConnections  int
	serviceConfig    string
	tls              *TLS
	token, tokenFile string
}

// DialOption is an option of a Client.
type DialOption func(*dialOptions)

// WithTimeout sets the deadline of calls whose context has none; for streams,
// the longest time without any progress. 0: none. The default is 60 s.
func WithTimeout(timeout time.Duration) DialOption {
	return func(o *dialOptions) { o.timeout = timeout }
}

// WithStuckTimeout sets the time after which a connection is closed if its peer
// does not read waiting bytes. A call whose deadline passes earlier returns
// only then, because the connection holds its tensors. The default is 10 s.
func WithStuckTimeout(timeout time.Duration) DialOption {
	return func(o *dialOptions) { o.stuckTimeout = timeout }
}

// WithMaxMessageBytes sets the largest size of a message, either way. Larger
// ones are neither sent nor received. At most 2 GiB - 1; the default is 512
// MiB.
func WithMaxMessageBytes(bytes int64) DialOption {
	return func(o *dialOptions) { o.maxMessageBytes = bytes }
}

// WithStreamAbove sets the size above which tensors to rotate or reposition go
// through a stream. The default is the largest message. A lower value, such as
// 16 MiB, makes transfer overlap with computation.
func WithStreamAbove(bytes int64) DialOption {
	return func(o *dialOptions) { o.streamAboveBytes = bytes }
}

// WithBulkConnections sets the number of connections for calls of 64 KiB and
// more. A new one is made when all others are busy: on a single connection,
// concurrent calls would delay each other. Smaller calls share a separate
// connection. 0: all calls share that one. The default is 4.
func WithBulkConnections(count int) DialOption {
	return func(o *dialOptions) { o.bulkConnections = count }
}

// WithServiceConfig replaces gRPC's service config, which is JSON.
func WithServiceConfig(json string) DialOption {
	return func(o *dialOptions) { o.serviceConfig = json }
}

// WithTLS requires TLS for every connection.
func WithTLS(config TLS) DialOption {
	return func(o *dialOptions) { o.tls = &config }
}

// WithToken sends a bearer token with every call. It needs TLS, or a target
// that is a unix socket or a loopback address.
func WithToken(token string) DialOption {
	return func(o *dialOptions) { o.token = token }
}

// WithTokenFile is like WithToken, with a file that holds only the token. The
// file is read again when it changes.
func WithTokenFile(path string) DialOption {
	return func(o *dialOptions) { o.tokenFile = path }
}

// DialFromEnv makes a client from the environment: POSENC_SERVER (default
// localhost:50051), POSENC_TLS=1 or POSENC_TLS_CA, POSENC_TLS_CERT,
// POSENC_TLS_KEY and POSENC_TLS_SERVER_NAME, POSENC_TOKEN or POSENC_TOKEN_FILE.
// Options override it.
func DialFromEnv(options ...DialOption) (*Client, error) {
	target := os.Getenv("POSENC_SERVER")
	if target == "" {
		target = "localhost:50051"
	}
	var found []DialOption
	config := TLS{
		CAFile:     os.Getenv("POSENC_TLS_CA"),
		CertFile:   os.Getenv("POSENC_TLS_CERT"),
		KeyFile:    os.Getenv("POSENC_TLS_KEY"),
		ServerName: os.Getenv("POSENC_TLS_SERVER_NAME"),
	}
	if config != (TLS{}) || os.Getenv("POSENC_TLS") == "1" {
		found = append(found, WithTLS(config))
	}
	found = append(found, WithToken(os.Getenv("POSENC_TOKEN")), WithTokenFile(os.Getenv("POSENC_TOKEN_FILE")))
	return Dial(target, append(found, options...)...)
}

type callOptions struct {
	requestID   string
	traceparent string
	progress    func(done, total int64)
	outputs     []Tensor
	saturation  Saturation
}

// Option is an option of one call.
type Option func(*callOptions)

// RequestID names the call in the server's log; the default is random.
func RequestID(id string) Option {
	return func(o *callOptions) { o.requestID = id }
}

// Traceparent is the W3C trace context of the caller.
func Traceparent(value string) Option {
	return func(o *callOptions) { o.traceparent = value }
}

// Progress is called after every chunk of a tensor or table that goes through a
// stream, with bytes of all tensors together.
func Progress(report func(done, total int64)) Option {
	return func(o *callOptions) { o.progress = report }
}

// Into names the memory for a call's results, in the order of its tensors: q's,
// then k's. An output may be its input's memory. Without Into a Rope rotates in
// place, and other calls allocate memory.
func Into(outputs ...Tensor) Option {
	return func(o *callOptions) { o.outputs = outputs }
}

// Saturate sets the treatment of results past the largest number of an FP8
// type.
func Saturate(saturation Saturation) Option {
	return func(o *callOptions) { o.saturation = saturation }
}

// output returns the memory for result number i, or nil.
func (o *callOptions) output(i int) []byte {
	if i >= len(o.outputs) || !o.outputs[i].given {
		return nil
	}
	if o.outputs[i].data == nil {
		return []byte{}
	}
	return o.outputs[i].data
}

// result describes a tensor of an answer before the call. Only the server knows
// the size of a concatenation, or of a preset's table.
type result struct {
	name  string
	dtype Dtype
	shape []int64 // nil: not known
	bytes int     // -1: not known
}

// outputName is the name of a result's memory in errors: the contract's field for
// its place.
func outputName(result string) string { return result + "_output" }

// likeInput is a result with the type and shape of a tensor of the request.
func likeInput(name string, input Tensor) result {
	return result{name, input.dtype, input.shape, len(input.data)}
}

// misfit returns an error if the memory for result number i is of another type,
// shape or size.
func (o *callOptions) misfit(i int, r result) error {
	if i >= len(o.outputs) || !o.outputs[i].given {
		return nil
	}
	switch output := o.outputs[i]; {
	case output.dtype != r.dtype:
		return wrongArgument(outputName(r.name), "is %v; must be %v", output.dtype, r.dtype)
	case r.shape != nil && !slices.Equal(output.shape, r.shape):
		return wrongArgument(outputName(r.name), "has shape %v; must have %v", output.shape, r.shape)
	case r.bytes >= 0 && len(output.data) != r.bytes:
		return wrongArgument(outputName(r.name), "has %d bytes; must have %d", len(output.data), r.bytes)
	}
	return nil
}

// receive returns the memory for result number i, which is in this field.
func (o *callOptions) receive(i int, name string, field protowire.Number, shared bool) *receivedTensor {
	t := &receivedTensor{name: name, field: field, into: o.output(i)}
	if i < len(o.outputs) {
		t.place = o.outputs[i].place
		t.shared = shared && t.place != nil
	}
	return t
}

// unused returns an error if an output is for a tensor that the call lacks, or
// lies in a closed region. has(i) is whether the call has tensor number i.
func (o *callOptions) unused(names []string, has func(i int) bool) error {
	for i, output := range o.outputs {
		if i >= len(names) {
			if output.given {
				return wrongArgument("Into", "output %d is given; this call has %d results", i, len(names))
			}
			continue
		}
		if err := checkOpen(outputName(names[i]), output); err != nil {
			return err
		}
		if output.given && !has(i) {
			return wrongArgument(outputName(names[i]), "is given, but %s is not; give both or neither", names[i])
		}
	}
	return nil
}

func collect(options []Option) *callOptions {
	o := &callOptions{}
	for _, option := range options {
		if option != nil {
			option(o)
		}
	}
	return o
}
