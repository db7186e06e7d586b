// Package frontier compares results: which points of a comparison group no other point
// dominates on two named axes, where a cache falls off, how two groups differ and how sure
// that is.
//
// A frontier is read as a step function: at an interactivity x a configuration reaches the
// throughput of its best measured point that is at least as interactive. Nothing is
// interpolated, so no number is claimed that was not measured.
package frontier

import (
	"cmp"
	"math"
	"slices"
)

// Direction says which end of an axis is better.
type Direction int8

const (
	Higher Direction = 1
	Lower  Direction = -1
)

// XY is a point in the plane of two axes.
type XY struct{ X, Y float64 }

// Pareto returns the indices of the points that no other point dominates, in order of rising X
// and, for equal X, of the points given. A point dominates another when it is at least as good
// on both axes and better on one; equal points don't dominate each other. A point with a
// coordinate that is not finite is never on the frontier.
func Pareto(points []XY, x, y Direction) []int {
	at := make([]int, 0, len(points))
	for i, p := range points {
		if finite(p.X) && finite(p.Y) {
			at = append(at, i)
		}
	}
	sx, sy := float64(x), float64(y)
	// Best x first; among equal x the best y first.
	slices.SortStableFunc(at, func(i, j int) int {
		return cmp.Or(cmp.Compare(sx*points[j].X, sx*points[i].X), cmp.Compare(sy*points[j].Y, sy*points[i].Y))
	})
	var on []int
	best := math.Inf(-1)
	for k, i := range at {
		p := points[i]
		v := sy * p.Y
		switch {
		case v > best:
			best = v
			on = append(on, i)
		case len(on) > 0 && points[on[len(on)-1]] == p && k > 0:
			on = append(on, i) // the same place as the one before
		}
	}
	slices.SortStableFunc(on, func(i, j int) int {
		return cmp.Or(cmp.Compare(points[i].X, points[j].X), cmp.Compare(i, j))
	})
	return on
}

// Reach is the best y among points that are at least as good as x, false when there is none.
func Reach(points []XY, xDir, yDir Direction, x float64) (best XY, ok bool) {
	for _, p := range points {
		if !finite(p.X) || !finite(p.Y) || float64(xDir)*p.X < float64(xDir)*x {
			continue
		}
		if !ok || float64(yDir)*p.Y > float64(yDir)*best.Y {
			best, ok = p, true
		}
	}
	return best, ok
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
