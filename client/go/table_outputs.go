package posenc

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

// tableOutputs pairs the tensors of a table (cos and sin, or the single table)
// with the caller's memory: the first output of Into is for the first tensor,
// and so on.
type tableOutputs struct {
	names   []string
	options *callOptions
}

// Fields of BuildTableResponse and BuildTableStreamResponse.
var tableFields = map[string]protowire.Number{"cos": 13, "sin": 14, "table": 15}

// outputsOfTable fails if an output is for a tensor that the table lacks, is of
// another type, or is known to have another size than its tensor.
func outputsOfTable(request *posencv1.BuildTableRequest, o *callOptions) (*tableOutputs, error) {
	t := &tableOutputs{names: []string{"cos", "sin"}, options: o}
	if request.GetRope() == nil || request.GetLayout() == posencv1.TableLayout_TABLE_LAYOUT_COMPLEX {
		t.names = []string{"table"}
	}
	wanted := result{dtype: tableDtype(request), shape: tableShape(request), bytes: int(tableBytes(request))}
	for i, output := range o.outputs {
		if !output.given {
			continue
		}
		if i >= len(t.names) {
			return nil, wrongArgument("Into", "output %d is given; this table has %s", i, strings.Join(t.names, " and "))
		}
		wanted.name = t.names[i]
		if err := checkOpen(outputName(wanted.name), output); err != nil {
			return nil, err
		}
		if err := o.misfit(i, wanted); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// byPlace returns the request with the places of outputs in shared memory; nil
// without such outputs. The server writes the whole tensor there, so its size
// must be known and equal the output's.
func (t *tableOutputs) byPlace(request *posencv1.BuildTableRequest) *posencv1.BuildTableRequest {
	if tableBytes(request) <= 0 {
		return nil
	}
	var changed *posencv1.BuildTableRequest
	for i, name := range t.names {
		if i >= len(t.options.outputs) || t.options.outputs[i].place == nil {
			continue
		}
		if changed == nil {
			changed = proto.Clone(request).(*posencv1.BuildTableRequest)
		}
		setOutput(changed, name, t.options.outputs[i].place)
	}
	return changed
}

// receive returns the memory for the tensors: cos, sin, table.
func (t *tableOutputs) receive(shared bool) []*receivedTensor {
	tensors := tableTensors()
	for i, name := range t.names {
		field := tableFields[name]
		tensors[field-tableFields["cos"]] = t.options.receive(i, name, field, shared)
	}
	return tensors
}

// tableShape returns the shape of each tensor of a table; nil if only the server
// knows it: for presets, configurations, and requests that it will refuse.
func tableShape(request *posencv1.BuildTableRequest) []int64 {
	if tableBytes(request) < 0 {
		return nil
	}
	shape := []int64{rowsOf(request), tableWidth(request)}
	if request.GetLayout() == posencv1.TableLayout_TABLE_LAYOUT_COMPLEX {
		shape = []int64{shape[0], shape[1] / 2, 2}
	}
	if heads := request.GetRope().GetSpec().GetExplicitFrequencies().GetHeads(); heads != 0 {
		shape = slices.Insert(shape, 0, int64(heads))
	}
	return shape
}

// tableBytes returns the bytes of each tensor of a table; -1 if only the server
// knows.
func tableBytes(request *posencv1.BuildTableRequest) int64 {
	extents := []int64{rowsOf(request), tableWidth(request), int64(elementBytes(tableDtype(request)))}
	if heads := request.GetRope().GetSpec().GetExplicitFrequencies().GetHeads(); heads != 0 {
		extents = append(extents, int64(heads))
	}
	bytes := int64(1)
	for _, extent := range extents {
		// 2^62 bytes are beyond any memory.
		if extent <= 0 || extent > (1<<62)/bytes {
			return -1
		}
		bytes *= extent
	}
	return bytes
}

func tableDtype(request *posencv1.BuildTableRequest) Dtype {
	if request.GetDtype() == 0 {
		return DtypeFloat32
	}
	return request.GetDtype()
}

// tableWidth returns the elements of a row; 0 if only the server knows.
func tableWidth(request *posencv1.BuildTableRequest) int64 {
	spec, absolute := request.GetRope().GetSpec(), request.GetAbsolute()
	switch {
	case spec != nil:
		width := int64(spec.GetRotaryDim())
		layout := request.GetLayout()
		if layout == posencv1.TableLayout_TABLE_LAYOUT_UNSPECIFIED || layout == posencv1.TableLayout_TABLE_LAYOUT_HALF {
			width /= 2
		}
		return width
	case absolute.GetSinusoidal() != nil:
		return int64(absolute.GetSinusoidal().GetDim())
	case absolute.GetSincosGrid() != nil:
		return int64(absolute.GetSincosGrid().GetDim())
	case absolute.GetTimestep() != nil:
		return int64(absolute.GetTimestep().GetDim())
	case absolute.GetLearned() != nil:
		return lastExtent(absolute.GetLearned().GetTable())
	default:
		return 2 * lastExtent(absolute.GetFourierFeatures().GetFrequencies())
	}
}

// lastExtent returns 0 for a tensor without extents.
func lastExtent(tensor *posencv1.Tensor) int64 {
	shape := tensor.GetShape()
	if len(shape) == 0 {
		return 0
	}
	return shape[len(shape)-1]
}
