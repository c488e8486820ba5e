package posenc

import "github.com/posenc/posenc/client/go/posencv1"

// headExtents are extents of a tensor of heads, independent of the order of its
// dimensions.
type headExtents struct{ batch, tokens int64 }

// part is a contiguous part of a tensor: some of its sequences, with some of
// their tokens.
type part struct {
	extents                headExtents // of the whole tensor
	batchBegin, batchEnd   int64
	tokensBegin, tokensEnd int64
	shape                  []int64
	offset, bytes          int64 // in the tensor
}

// axis is the meaning of one dimension of a tensor of heads.
type axis int

const (
	batchAxis axis = iota
	tokenAxis
	headAxis
	channelAxis
)

// axesOf returns the dimensions of a layout, outermost first, and how many of
// them may be cut. Channels are never cut, and heads only in BHSD, in which a
// head's tokens are contiguous, unless heads must stay together.
func axesOf(layout Layout, wholeHeads bool) (axes []axis, cuttable int) {
	switch layout {
	case BSHD:
		return []axis{batchAxis, tokenAxis, headAxis, channelAxis}, 2
	case BHSD:
		if wholeHeads {
			return []axis{batchAxis, headAxis, tokenAxis, channelAxis}, 1
		}
		return []axis{batchAxis, headAxis, tokenAxis, channelAxis}, 3
	case SBHD:
		return []axis{tokenAxis, batchAxis, headAxis, channelAxis}, 2
	case THD:
		return []axis{tokenAxis, headAxis, channelAxis}, 1
	default:
		return nil, 0
	}
}

func (p *part) setRange(a axis, begin, end int64) {
	switch a {
	case batchAxis:
		p.batchBegin, p.batchEnd = begin, end
	case tokenAxis:
		p.tokensBegin, p.tokensEnd = begin, end
	}
}

// misfit is the error of a tensor that cannot be cut. The server checks
// everything else.
func misfit(field, format string, args ...any) error {
	return wrongArgument(field, format+"; the tensor cannot be cut into parts", args...)
}

// checkShape compares by division, because the product of a wrong shape may
// overflow. The quotient of the bytes must be 1 at the end.
func checkShape(name string, t Tensor, axes []axis) error {
	if len(axes) == 0 || len(axes) != len(t.shape) {
		return misfit(name+".shape", "%s does not go with the layout", shapeText(t.shape))
	}
	size, left := elementBytes(t.dtype), int64(len(t.data))
	fits := size > 0 && left%int64(size) == 0
	if fits {
		left /= int64(size)
	}
	for _, extent := range t.shape {
		if fits = fits && extent > 0 && left%extent == 0; fits {
			left /= extent
		}
	}
	if !fits || left != 1 {
		return misfit(name+".shape", "%s of %v does not have %d bytes", shapeText(t.shape), t.dtype, len(t.data))
	}
	return nil
}

// cutTensor cuts a tensor into parts, in the order of memory, of at most
// maxBytes if possible: a token of one head is never cut, and neither are the
// heads of a token in layouts in which they are contiguous.
func cutTensor(name string, t Tensor, layout Layout, wholeHeads bool, maxBytes int64) ([]part, error) {
	axes, cuttable := axesOf(layout, wholeHeads)
	if err := checkShape(name, t, axes); err != nil {
		return nil, err
	}
	whole := part{extents: headExtents{batch: 1}, batchEnd: 1}
	step := make([]int64, len(axes)) // bytes of one step along each axis
	bytes := int64(elementBytes(t.dtype))
	for i := len(axes) - 1; i >= 0; i-- {
		step[i] = bytes
		bytes *= t.shape[i]
		whole.setRange(axes[i], 0, t.shape[i])
	}
	whole.extents = headExtents{whole.batchEnd, whole.tokensEnd}

	// Cuts along one axis: the outermost whose steps are small enough, or else the
	// last that may be cut.
	cut := 0
	for cut+1 < cuttable && step[cut] > maxBytes {
		cut++
	}
	extent := t.shape[cut]
	run := min(max(maxBytes/step[cut], 1), extent)
	var parts []part
	index := make([]int64, cut) // along the outer axes
	for offset := int64(0); offset < bytes; {
		p := whole
		for i, at := range index {
			p.setRange(axes[i], at, at+1)
		}
		for begin := int64(0); begin < extent; begin += run {
			end := min(begin+run, extent)
			p.setRange(axes[cut], begin, end)
			p.shape = append([]int64(nil), t.shape...)
			for i := range index {
				p.shape[i] = 1
			}
			p.shape[cut] = end - begin
			p.offset, p.bytes = offset, (end-begin)*step[cut]
			parts = append(parts, p)
			offset += p.bytes
		}
		for i := cut - 1; i >= 0; i-- {
			if index[i]++; index[i] < t.shape[i] {
				break
			}
			index[i] = 0
		}
	}
	return parts, nil
}

// needAxes returns whether ids of this shape may be [B, S] or [axes, S]: only
// the encoding shows whether it has several axes.
func needAxes(layout Layout, e headExtents, all ...*posencv1.Tensor) bool {
	for _, ids := range all {
		shape := ids.GetShape()
		if layout != THD && len(shape) == 2 && shape[0] == e.batch && e.batch > 1 {
			return true
		}
	}
	return false
}
