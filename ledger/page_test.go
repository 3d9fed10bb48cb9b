package ledger

import (
	"errors"
	"slices"
	"testing"
)

func TestPagedReadsToTheEnd(t *testing.T) {
	for _, n := range []int{0, 1, firstPage - 1, firstPage, firstPage + 1, 3 * firstPage, 3*firstPage + 1, 5000} {
		var limits, got []int
		fetch := func(last *int, limit int) (page []int, err error) {
			limits = append(limits, limit)
			next := 0
			if last != nil {
				next = *last + 1
			}
			for ; next < n && len(page) < limit; next++ {
				page = append(page, next)
			}
			return page, nil
		}
		for row, err := range paged(fetch) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, row)
		}
		if len(got) != n || !slices.IsSorted(got) {
			t.Errorf("%d rows of %d", len(got), n)
		}
		if limits[0] != firstPage || slices.Max(limits) > largestPage {
			t.Errorf("pages of %v", limits)
		}
	}
}

func TestPagedStops(t *testing.T) {
	fetched := 0
	fetch := func(*int, int) ([]int, error) {
		fetched++
		return make([]int, firstPage), nil
	}
	for range paged(fetch) {
		break
	}
	if fetched != 1 {
		t.Errorf("%d pages were fetched for one row", fetched)
	}
}

func TestPagedEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	rows, failures := 0, 0
	for _, err := range paged(func(last *int, limit int) ([]int, error) {
		if last != nil {
			return nil, broken
		}
		return make([]int, limit), nil
	}) {
		if err == nil {
			rows++
		} else if failures++; !errors.Is(err, broken) {
			t.Error(err)
		}
	}
	if rows != firstPage || failures != 1 {
		t.Errorf("%d rows and %d errors", rows, failures)
	}
}
