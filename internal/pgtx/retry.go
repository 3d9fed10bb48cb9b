package pgtx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	maxAttempts = 10
	firstDelay  = 5 * time.Millisecond
	maxDelay    = time.Second

	serializationFailure = "40001"
	deadlockDetected     = "40P01"
)

// Retryable reports whether a transaction that ended with err has left no
// trace and may succeed when it is repeated from its beginning: it could not be
// serialized, it was the victim of a deadlock, or its first statement never
// left the client because the connection was dead. A connection that broke
// later is not retryable: the commit may have happened. A lock that was not
// available in time is not, either: the caller asked not to wait.
func Retryable(err error) bool {
	return HasCode(err, serializationFailure, deadlockDetected) || pgconn.SafeToRetry(err)
}

// Retry calls fn until it returns nil or an error that is not [Retryable], up
// to ten times, and sleeps in between: a random time of up to 5 ms, 10 ms, 20 ms
// and so on to 1 s. It returns fn's last error. When ctx has ended it does
// not go on, and returns that error joined with ctx's. An error with one of the
// given SQLSTATEs is repeated as well, such as lock_not_available where fn bounds
// its waiting so as not to hold up others.
//
// fn must be a whole transaction of its own, such as [Run] on a pool. Retry
// must not be used inside a caller's transaction: the snapshot and the locks
// that made fn fail belong to that transaction, so only the caller can repeat it.
func Retry(ctx context.Context, fn func() error, codes ...string) error {
	delay := firstDelay
	for attempt := 1; ; attempt++ {
		err := fn()
		if err == nil || !Retryable(err) && !HasCode(err, codes...) {
			return err
		}
		if attempt == maxAttempts {
			return fmt.Errorf("gave up after %d attempts: %w", maxAttempts, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(delay)):
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		delay = min(2*delay, maxDelay)
	}
}
