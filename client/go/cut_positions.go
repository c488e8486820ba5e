package posenc

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

// later returns the position that is `tokens` further on. It saturates instead
// of overflowing: the server refuses such positions, and names them.
func later(position, tokens int64) int64 {
	if position > math.MaxInt64-tokens {
		return position
	}
	return position + tokens
}

// cutPositions returns the positions of a part's tokens. Missing positions stay
// missing: the server reports them.
func cutPositions(positions *Positions, layout Layout, several bool, p *part) (*Positions, error) {
	switch kind := positions.GetKind().(type) {
	case *posencv1.Positions_Start:
		return StartAt(later(kind.Start, p.tokensBegin)), nil
	case *posencv1.Positions_Starts:
		starts := kind.Starts.GetValues()
		if int64(len(starts)) != p.extents.batch {
			return nil, misfit("positions.starts", "%d of %d sequences", len(starts), p.extents.batch)
		}
		var cut []int64
		for _, start := range starts[p.batchBegin:p.batchEnd] {
			cut = append(cut, later(start, p.tokensBegin))
		}
		return StartsAt(cut...), nil
	case *posencv1.Positions_Ids:
		ids, err := cutIDs(kind.Ids, layout, several, p)
		return &Positions{Kind: &posencv1.Positions_Ids{Ids: ids}}, err
	case *posencv1.Positions_Packed:
		if layout != THD {
			return nil, misfit("positions.packed", "goes with layout THD")
		}
		return cutPacked(kind.Packed, p)
	default:
		return positions, nil
	}
}

// cutPacked cuts a packed batch between any two tokens. The sequences that a
// part covers, wholly or partly, become its sequences, each with its own start:
//
//	cu_seqlens  0     4       9        the part: tokens [2, 6)
//	            |-----|-------|  -->   cu_seqlens 0 2 4
//	               [   part ]          starts     2 0 (if all started at 0)
func cutPacked(packed *posencv1.PackedSequences, p *part) (*Positions, error) {
	ends, starts := packed.GetCuSeqlens(), packed.GetStarts()
	sequences := len(ends) - 1
	if sequences < 0 || ends[0] != 0 || ends[sequences] != p.extents.tokens || !slices.IsSorted(ends) {
		return nil, misfit("positions.packed.cu_seqlens", "are no ascending bounds from 0 to %d tokens", p.extents.tokens)
	}
	if len(starts) != 0 && len(starts) != sequences {
		return nil, misfit("positions.packed.starts", "%d of %d sequences", len(starts), sequences)
	}
	cut := &posencv1.PackedSequences{CuSeqlens: []int64{0}}
	for i := range sequences {
		begin, end := max(ends[i], p.tokensBegin), min(ends[i+1], p.tokensEnd)
		if begin >= end {
			continue
		}
		start := int64(0)
		if len(starts) > 0 {
			start = starts[i]
		}
		cut.CuSeqlens = append(cut.CuSeqlens, end-p.tokensBegin)
		cut.Starts = append(cut.Starts, later(start, begin-ends[i]))
	}
	return &Positions{Kind: &posencv1.Positions_Packed{Packed: cut}}, nil
}

// More axes than any encoding has, so that the product of axes, batch and
// tokens cannot overflow.
const maxAxes = 1 << 16

// cutIDs cuts ids, or tensors with their shape: [S], [B, S], [axes, S] or
// [axes, B, S]; [T] or [axes, T] if packed. The rank and the first extent show
// which, except if needAxes.
func cutIDs(ids *posencv1.Tensor, layout Layout, several bool, p *part) (*posencv1.Tensor, error) {
	shape, rank, inner := ids.GetShape(), len(ids.GetShape()), 2
	if layout == THD {
		inner = 1
	}
	if rank == inner+1 || rank == 2 && inner == 2 && shape[0] != p.extents.batch {
		several = true
	}
	axes := int64(1)
	if several && rank > 0 {
		axes = shape[0]
		shape = shape[1:]
	}
	perSequence := len(shape) == 2 && inner == 2
	batch, rowBegin, rowEnd := int64(1), int64(0), int64(1)
	if perSequence {
		batch, rowBegin, rowEnd = p.extents.batch, p.batchBegin, p.batchEnd
	}
	tokens := p.extents.tokens
	size := int64(elementBytes(ids.GetDtype()))
	fits := (len(shape) == 1 || perSequence) && axes > 0 && axes <= maxAxes &&
		shape[len(shape)-1] == tokens && (!perSequence || shape[0] == batch)
	if fits {
		// This does not overflow: the tokens are in memory.
		count := axes * batch * tokens
		if len(ids.GetValues()) > 0 {
			fits = int64(len(ids.GetValues())) == count
		} else {
			fits = size > 0 && int64(len(ids.GetData())) == count*size
		}
	}
	if !fits {
		return nil, misfit("positions", "ids %s are not those of %d x %d tokens",
			shapeText(ids.GetShape()), p.extents.batch, tokens)
	}
	// The ids are a matrix of axes * batch rows and a column for every token. A
	// part has some sequences of each axis, with some of their tokens.
	cut := &posencv1.Tensor{Dtype: ids.GetDtype()}
	if several {
		cut.Shape = append(cut.Shape, axes)
	}
	if perSequence {
		cut.Shape = append(cut.Shape, rowEnd-rowBegin)
	}
	cut.Shape = append(cut.Shape, p.tokensEnd-p.tokensBegin)
	for a := range axes {
		for row := a*batch + rowBegin; row < a*batch+rowEnd; row++ {
			begin, end := row*tokens+p.tokensBegin, row*tokens+p.tokensEnd
			if len(ids.GetValues()) > 0 {
				cut.Values = append(cut.Values, ids.GetValues()[begin:end]...)
			} else {
				cut.Data = append(cut.Data, ids.GetData()[begin*size:end*size]...)
			}
		}
	}
	return cut, nil
}

// cutMovement cuts all positions and shifts of a movement.
func cutMovement(movement *Movement, layout Layout, several bool, p *part) (*Movement, error) {
	if movement == nil {
		return nil, nil
	}
	cut := proto.CloneOf(movement)
	var err error
	if from := movement.GetOldPositions(); from != nil {
		if cut.OldPositions, err = cutPositions(from, layout, several, p); err != nil {
			return nil, err
		}
	}
	switch target := movement.GetTarget().(type) {
	case *posencv1.Movement_NewPositions:
		to, err := cutPositions(target.NewPositions, layout, several, p)
		cut.Target = &posencv1.Movement_NewPositions{NewPositions: to}
		return cut, err
	case *posencv1.Movement_Shifts:
		shifts, err := cutIDs(target.Shifts, layout, several, p)
		cut.Target = &posencv1.Movement_Shifts{Shifts: shifts}
		return cut, err
	}
	return cut, nil
}
