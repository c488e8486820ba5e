package posenc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/posenc/posenc/client/go/posencv1"
)

// SharedRegion is memory that a server on this host maps, too: for tensors that
// lie there, calls carry only their places.
type SharedRegion struct {
	name string // of the file; empty if no memory is shared
	path string

	mutex  sync.Mutex
	memory []byte // nil once it is closed
}

// place is where a tensor lies in a region.
type place struct {
	region *SharedRegion
	offset int64
}

type regionOptions struct{ name, directory string }

// RegionOption is an option of a SharedRegion.
type RegionOption func(*regionOptions)

// RegionName names the region's file. The default is the server's prefix and
// random digits.
func RegionName(name string) RegionOption {
	return func(o *regionOptions) { o.name = name }
}

// RegionDirectory is this process's path of the server's directory, if it
// differs.
func RegionDirectory(path string) RegionOption {
	return func(o *regionOptions) { o.directory = path }
}

// SharedRegion makes a region of this many bytes; the caller closes it. If the
// server shares no memory with this client, the region is ordinary memory, and
// calls send its bytes.
func (c *Client) SharedRegion(ctx context.Context, bytes int64, options ...RegionOption) (*SharedRegion, error) {
	o := &regionOptions{}
	for _, option := range options {
		if option != nil {
			option(o)
		}
	}
	if bytes <= 0 {
		return nil, wrongArgument("bytes", "is %d; must be above 0", bytes)
	}
	server, err := c.GetServerInfo(ctx)
	if err != nil {
		return nil, err
	}
	info := server.GetSharedMemory()
	if info == nil {
		memory, err := privateMemory(bytes)
		return &SharedRegion{memory: memory}, err
	}
	if most := info.GetMaxBytes(); most > 0 && bytes > most {
		return nil, wrongArgument("bytes", "is %d; the server maps at most %d", bytes, most)
	}
	region := &SharedRegion{name: o.name}
	if region.name == "" {
		var random [8]byte
		rand.Read(random[:])
		region.name = fmt.Sprintf("%s%d-%s", info.GetPrefix(), os.Getpid(), hex.EncodeToString(random[:]))
	}
	if !fileName.MatchString(region.name) || region.name == "." || region.name == ".." {
		return nil, wrongArgument("name", "is %q; must be 1 to 255 letters, digits, '.', '_' and '-', and not '.' or '..'", region.name)
	}
	if !strings.HasPrefix(region.name, info.GetPrefix()) {
		return nil, wrongArgument("name", "is %q; must begin with %q", region.name, info.GetPrefix())
	}
	if o.directory == "" {
		o.directory = info.GetDirectory()
	}
	region.path = filepath.Join(o.directory, region.name)
	region.memory, err = newSharedFile(region.path, bytes)
	if err != nil {
		return nil, err
	}
	return region, nil
}

var fileName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,255}$`)

// Name returns the name of the region's file; "" if the server shares no memory
// with the client.
func (r *SharedRegion) Name() string { return r.name }

// Tensor views the bytes from offset on. Calls send the tensor's place, and the
// server writes results there if Into names it; a tensor made from a slice of
// its elements is sent as bytes.
func (r *SharedRegion) Tensor(dtype Dtype, offset int64, shape ...int) (Tensor, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.memory == nil {
		return Tensor{}, wrongArgument("region", "is closed; make another one")
	}
	size := int64(elementBytes(dtype))
	if size == 0 {
		return Tensor{}, wrongArgument("dtype", "is %d, which this client does not know", int32(dtype))
	}
	if offset < 0 || offset%size != 0 {
		return Tensor{}, wrongArgument("offset", "is %d; must be a multiple of %d, 0 or more", offset, size)
	}
	for _, extent := range shape {
		if extent < 0 {
			return Tensor{}, wrongArgument("shape", "is %v; must not be negative", shape)
		}
	}
	if slices.Contains(shape, 0) {
		size = 0
	}
	room := int64(len(r.memory)) - offset
	for _, extent := range shape {
		if size > 0 && int64(extent) > max(room, 0)/size {
			return Tensor{}, wrongArgument("shape", "%v of %v at offset %d does not fit %d bytes", shape, dtype, offset, len(r.memory))
		}
		size *= int64(extent)
	}
	if size > room {
		return Tensor{}, wrongArgument("shape", "%v of %v at offset %d does not fit %d bytes", shape, dtype, offset, len(r.memory))
	}
	tensor := Bytes(dtype, r.memory[offset:offset+size:offset+size], shape...)
	if r.name != "" && size > 0 {
		tensor.place = &place{r, offset}
	}
	return tensor, nil
}

// Close removes the file and unmaps the memory: using a slice of it afterwards
// crashes the program. No call with its tensors may be running.
func (r *SharedRegion) Close() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.memory == nil {
		return nil
	}
	err := unmap(r.memory)
	r.memory = nil
	if r.path == "" {
		return err
	}
	if failed := os.Remove(r.path); failed != nil && !os.IsNotExist(failed) {
		err = errors.Join(err, failed)
	}
	return err
}

func (p *place) message() *posencv1.SharedMemory {
	return &posencv1.SharedMemory{Name: p.region.name, Offset: p.offset}
}

func (p *place) closed() bool {
	p.region.mutex.Lock()
	defer p.region.mutex.Unlock()
	return p.region.memory == nil
}

// checkOpen refuses a tensor whose region is closed.
func checkOpen(name string, tensor Tensor) error {
	if tensor.place != nil && tensor.place.closed() {
		return wrongArgument(name, "lies in a shared region that is closed")
	}
	return nil
}

// sharing is a request with places instead of bytes: it says which outputs lie
// in regions, and which of them are their inputs.
type sharing struct {
	any     bool
	inPlace []string // names of tensors
	rest    int64    // bytes of inputs outside of regions
}

func sharingOf(names []string, inputs []Tensor, outputs []Tensor) sharing {
	var s sharing
	for _, input := range inputs {
		if input.place == nil {
			s.rest += int64(len(input.data))
		}
		s.any = s.any || input.place != nil
	}
	for i, output := range outputs {
		if output.place == nil {
			continue
		}
		s.any = true
		for _, input := range inputs {
			if input.place != nil && *input.place == *output.place {
				s.inPlace = append(s.inPlace, names[i])
				break
			}
		}
	}
	return s
}

// failed converts the error of a call with places for its caller. again:
// nothing has been written, and the call may be sent again with bytes.
func (s sharing) failed(err error) (told error, again bool) {
	var e *Error
	if !errors.As(err, &e) {
		return err, false
	}
	// An older server does not know the fields.
	refused := e.Reason == "SHARED_MEMORY_UNAVAILABLE" || e.Reason == "FIELD_UNKNOWN"
	if refused && (e.code == codes.Unimplemented || e.code == codes.PermissionDenied) {
		return err, true
	}
	if len(s.inPlace) == 0 {
		return err, tooLarge(err)
	}
	switch e.code {
	// The server has refused the call.
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Aborted, codes.Unimplemented:
	default:
		e.Message += "; " + strings.Join(s.inPlace, " and ") + " may have been rotated by then, in part or whole: write it anew"
	}
	return e, false
}

// setOutput sets the field of a request for a result's place.
func setOutput(request proto.Message, result string, p *place) {
	message := request.ProtoReflect()
	field := message.Descriptor().Fields().ByName(protoreflect.Name(result + "_output"))
	message.Set(field, protoreflect.ValueOfMessage(p.message().ProtoReflect()))
}
