package ledger

import (
	"cmp"
	"slices"
)

// bookingOrder puts what was booked at one time, a batch, into an order in which it can have been booked: such that versions rise along
// every account. The books keep no other trace of that order. If there is none, what is wrong comes last, as it was.
func bookingOrder(moment []*booking) []*booking {
	if len(moment) < 2 {
		return moment
	}
	type place struct {
		version int64
		booking int
	}
	places := map[*exportAccount][]place{}
	for i, b := range moment {
		for _, leg := range b.legs {
			places[leg.account] = append(places[leg.account], place{leg.version, i})
		}
	}
	waitsFor := make([]int, len(moment)) // how many others come before it
	followers := make([][]int, len(moment))
	for _, line := range places {
		slices.SortFunc(line, func(x, y place) int { return cmp.Compare(x.version, y.version) })
		for i := 1; i < len(line); i++ {
			if before, after := line[i-1].booking, line[i].booking; before != after {
				followers[before] = append(followers[before], after)
				waitsFor[after]++
			}
		}
	}
	var ready []int
	for i := range moment {
		if waitsFor[i] == 0 {
			ready = append(ready, i)
		}
	}
	ordered := make([]*booking, 0, len(moment))
	for ; len(ready) > 0; ready = ready[1:] {
		i := ready[0]
		ordered = append(ordered, moment[i])
		slices.Sort(followers[i]) // the map above has no order, and an export has the same one each time
		for _, after := range followers[i] {
			if waitsFor[after]--; waitsFor[after] == 0 {
				ready = append(ready, after)
			}
		}
	}
	for i, b := range moment {
		if waitsFor[i] > 0 {
			ordered = append(ordered, b)
		}
	}
	return ordered
}
