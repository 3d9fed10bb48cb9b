package ibench

import (
	"context"
	"time"
)

// pace says when operations are due: one after each interval of the time in which the side had its turns, whether or not those before have
// been answered. What a slice has no more time for is late in the next one.
type pace struct {
	every  time.Duration
	began  time.Time     // of the slice
	passed time.Duration // in the slices before
	length time.Duration // of a slice
}

// due returns when an operation is due, on the clock of this slice. Of those left over from slices before that is before the slice began.
func (p pace) due(number int64, phase time.Duration) time.Time {
	return p.began.Add(time.Duration(number)*p.every + phase - p.passed)
}

// keep does operations, from number *next on, as they become due before the slice ends. They get the time at which they were due.
func (p pace) keep(ctx context.Context, next *int64, phase time.Duration, do func(due time.Time) error) error {
	end := p.began.Add(p.length)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due := p.due(*next, phase)
		if !due.Before(end) || !time.Now().Before(end) {
			return nil
		}
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return nil
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := do(due); err != nil {
			return err
		}
		*next++
	}
}
