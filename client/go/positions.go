package posenc

import "github.com/posenc/posenc/client/go/posencv1"

// Layout is the order of a tensor's dimensions.
type Layout = posencv1.Layout

// The letters mean: B batch, S sequence, H heads, D head_dim, T all tokens of a packed batch.
const (
	BSHD = posencv1.Layout_LAYOUT_BSHD
	BHSD = posencv1.Layout_LAYOUT_BHSD
	SBHD = posencv1.Layout_LAYOUT_SBHD
	THD  = posencv1.Layout_LAYOUT_THD
)

// The pairings say which two channels form a pair.
const (
	HalfSplit   = posencv1.Pairing_PAIRING_HALF_SPLIT
	Interleaved = posencv1.Pairing_PAIRING_INTERLEAVED
)

// Positions are the tokens' positions.
type Positions = posencv1.Positions

// Movement is a shift of keys, or their old and new positions.
type Movement = posencv1.Movement

// StartAt puts token t of every sequence at start + t.
func StartAt(start int64) *Positions {
	return &Positions{Kind: &posencv1.Positions_Start{Start: start}}
}

// StartsAt gives each sequence of the batch its own start.
func StartsAt(starts ...int64) *Positions {
	return &Positions{Kind: &posencv1.Positions_Starts{Starts: &posencv1.SequenceStarts{Values: starts}}}
}

// IDs gives every token its position: [S], [B, S], or [T] for THD. With several position axes, the first dimension
// counts the axes: [axes, S]. IDs copies the ids.
func IDs(ids Tensor) *Positions { return &Positions{Kind: &posencv1.Positions_Ids{Ids: ids.message()}} }

// Packed sets where the sequences of a THD batch begin and end. Sequence i starts at position starts[i], or at 0 if
// starts are not given.
func Packed(cuSeqlens []int64, starts ...int64) *Positions {
	packed := &posencv1.PackedSequences{CuSeqlens: cuSeqlens, Starts: starts}
	return &Positions{Kind: &posencv1.Positions_Packed{Packed: packed}}
}

// ShiftBy moves every key by `shift` positions.
func ShiftBy(shift int64) *Movement { return &Movement{Target: &posencv1.Movement_Shift{Shift: shift}} }

// ShiftEach moves every key by its own number of positions. The shifts have the shape of ids, and are copied.
func ShiftEach(shifts Tensor) *Movement {
	return &Movement{Target: &posencv1.Movement_Shifts{Shifts: shifts.message()}}
}

// MoveTo moves keys from the positions `from` to the positions `to`.
func MoveTo(from, to *Positions) *Movement {
	return &Movement{OldPositions: from, Target: &posencv1.Movement_NewPositions{NewPositions: to}}
}
