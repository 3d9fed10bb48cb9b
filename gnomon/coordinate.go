package gnomon

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-db/annals/internal/pgtx"
)

// Ref names a place in the past: a coordinate ([Coordinate.Ref]), a tag ([AtTag]), a time ([AtTime]) or [Present].
type Ref string

// Present is the place of what is committed now.
const Present Ref = "now"

// AtTime is the place of a time: exact where PostgreSQL keeps the times of commits (track_commit_timestamp), else that of the last tick at or
// before it, see [Gnomon.RunHeartbeat]. [Gnomon.Resolve] tells which.
func AtTime(t time.Time) Ref { return Ref(t.UTC().Format("2006-01-02T15:04:05.999999Z07:00")) }

// AtTag is the place of a tag.
func AtTag(name string) Ref { return Ref("tag:" + name) }

// Coordinate is an exact place in the history of a database: what is committed there. It holds until the server crashes, is promoted or
// restored, and then is [ErrEpoch]; a tag on it outlasts the first two. The zero value is none. Coordinates are texts to databases and in
// JSON; NULL is the zero value.
type Coordinate struct {
	text string
}

// coordinateParts are what a coordinate consists of.
type coordinateParts struct {
	marker     string   // of the epoch, between two crashes or promotions
	xmin, xmax uint64   // transactions below xmin are seen, those from xmax on are not
	xip        []uint64 // transactions between the two that are not seen, ascending
	lsn        uint64   // what is seen lies before it in the write-ahead log
}

var coordinateForm = regexp.MustCompile(`^([0-9a-f]{8})/([0-9]+):([0-9]+):((?:[0-9]+(?:,[0-9]+)*)?)/([0-9A-F]{1,8})/([0-9A-F]{1,8})$`)

// ParseCoordinate reads the text form, or returns an error that matches [ErrInvalid].
func ParseCoordinate(text string) (Coordinate, error) {
	if _, valid := parseCoordinate(text); !valid {
		shown := text
		if len(shown) > 100 {
			shown = shown[:100]
		}
		return Coordinate{}, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("%q is no coordinate", shown), Hint: "A coordinate is the text that gnomon.now() returned."}
	}
	return Coordinate{text: text}, nil
}

func parseCoordinate(text string) (p coordinateParts, valid bool) {
	m := coordinateForm.FindStringSubmatch(text)
	if m == nil {
		return p, false
	}
	number := func(digits string) (n uint64) {
		n, err := strconv.ParseUint(digits, 10, 64)
		valid = valid && err == nil
		return n
	}
	valid = true
	p.marker, p.xmin, p.xmax = m[1], number(m[2]), number(m[3])
	valid = valid && p.xmin > 0 && p.xmin <= p.xmax
	last := p.xmin
	if m[4] != "" {
		for digits := range strings.SplitSeq(m[4], ",") {
			x := number(digits)
			valid = valid && x >= last && x < p.xmax
			p.xip, last = append(p.xip, x), x
		}
	}
	high, _ := strconv.ParseUint(m[5], 16, 32)
	low, _ := strconv.ParseUint(m[6], 16, 32)
	p.lsn = high<<32 | low
	return p, valid
}

// sees reports whether a transaction is seen.
func (p coordinateParts) sees(x uint64) bool {
	_, running := slices.BinarySearch(p.xip, x)
	return x < p.xmax && !running
}

// covers reports whether p sees all that q sees; see annals.snapshot_covers.
func (p coordinateParts) covers(q coordinateParts) bool {
	if slices.ContainsFunc(p.xip, q.sees) {
		return false
	}
	// Beyond the end of p, q sees what it does not list.
	first, _ := slices.BinarySearch(q.xip, p.xmax)
	return q.xmax <= p.xmax || q.xmax-p.xmax == uint64(len(slices.Compact(slices.Clone(q.xip[first:]))))
}

// Before reports whether c is earlier than d: d sees all that c sees, and more. They can't be compared when they are of different epochs (a
// crash, a promotion or a restore lies between them), or when each sees what the other does not; one of them may be the zero value.
func (c Coordinate) Before(d Coordinate) (before, comparable bool) {
	p, valid := parseCoordinate(c.text)
	q, validToo := parseCoordinate(d.text)
	if !valid || !validToo || p.marker != q.marker {
		return false, false
	}
	later, earlier := q.covers(p), p.covers(q)
	return later && !earlier, later || earlier
}

// Equal reports whether c and d are the same place: of one epoch, and each sees what the other sees.
func (c Coordinate) Equal(d Coordinate) bool {
	before, comparable := c.Before(d)
	after, _ := d.Before(c)
	return c == d || comparable && !before && !after
}

// IsZero reports whether c is none.
func (c Coordinate) IsZero() bool { return c.text == "" }

// Ref is the reference that names the coordinate.
func (c Coordinate) Ref() Ref { return Ref(c.text) }

// String returns the text form.
func (c Coordinate) String() string { return c.text }

// MarshalText returns the text form.
func (c Coordinate) MarshalText() ([]byte, error) { return []byte(c.text), nil }

// UnmarshalText reads the text form; an empty text is the zero value.
func (c *Coordinate) UnmarshalText(text []byte) (err error) {
	*c = Coordinate{}
	if len(text) > 0 {
		*c, err = ParseCoordinate(string(text))
	}
	return err
}

// ScanText reads a value of the database.
func (c *Coordinate) ScanText(v pgtype.Text) error { return c.UnmarshalText([]byte(v.String)) }

// TextValue is the value for the database.
func (c Coordinate) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: c.text, Valid: c.text != ""}, nil
}

// Now returns the coordinate of what is committed now or, in a REPEATABLE READ transaction, of what that sees; without the changes of the
// caller's transaction. [ErrStandby]: it can't be taken on a standby.
func (g *Gnomon) Now(ctx context.Context) (c Coordinate, err error) {
	err = pgtx.QueryRow(ctx, g.db, []any{&c.text}, "select gnomon.now()")
	return c, refused(err)
}

// Place is what a reference stands for.
type Place struct {
	Coordinate Coordinate
	Asked      time.Time     // the time that was asked for; zero: it was not a time
	At         time.Time     // the last tick at or before that time
	Next       time.Time     // the next tick; zero: there is none yet
	Exact      bool          // the place is just what was asked for; else it is that of the tick
	Coarse     time.Duration // how much older than the time that was asked for the place may be; 0: it is exact
}

// Resolve finds out what a reference stands for. [ErrUnknownTag]; [ErrNoTick]: no tick is as old as the time; [ErrEpoch]: the database was
// restored since or, for a coordinate, crashed or was promoted; [ErrNotYet]: the coordinate is later than what is seen here.
func (g *Gnomon) Resolve(ctx context.Context, ref Ref) (p Place, err error) {
	var asked, at, next *time.Time
	err = pgtx.QueryRow(ctx, g.db, []any{&p.Coordinate, &asked, &at, &next, &p.Exact}, "select coordinate, asked, at, next_at, exact from gnomon.place_of($1)", string(ref))
	if err != nil {
		return Place{}, refused(err)
	}
	p.Asked, p.At, p.Next = timeOf(asked), timeOf(at), timeOf(next)
	if !p.Exact {
		p.Coarse = p.Asked.Sub(p.At)
	}
	return p, nil
}

// timeOf is the time, or the zero time for NULL.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// Wait returns when this database shows all that a coordinate sees: at once where it was taken, on a standby once that much was replayed.
// Transactions that begin then can read there. It returns an error that matches [ErrEpoch] where that can't come any more, and ctx's when it
// ends first. In a transaction above READ COMMITTED, which never sees more, it does not wait: [ErrNotYet].
func (g *Gnomon) Wait(ctx context.Context, c Coordinate) error {
	fixed := false
	if pgtx.InTx(g.db) {
		if err := pgtx.QueryRow(ctx, g.db, []any{&fixed}, "select current_setting('transaction_isolation') in ('repeatable read', 'serializable')"); err != nil {
			return err
		}
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		_, err := pgtx.Exec(ctx, g.db, "select gnomon.place_of($1)", c.text)
		if err = refused(err); fixed || !errors.Is(err, ErrNotYet) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
