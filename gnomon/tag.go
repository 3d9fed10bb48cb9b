package gnomon

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Tag is a named place. History from it on is not pruned. A tag outlasts crashes of the server and promotions of standbys: where it is left,
// so is all that it sees. After a restore of a dump it is [ErrEpoch].
type Tag struct {
	Name       string
	Coordinate Coordinate // of its place, as it is written at present
	At         time.Time  // when it was set or moved last
	Login      string     // the role that logged in to do that
	Note       string
}

// Tag names a place. Of a transaction that runs, [Present] is without its own changes. Of tables whose history does not reach back to it, the
// place tells nothing, as ever. The note is for people; several are joined by spaces. [ErrTagExists]: the name is taken; [ErrInvalid]: it is empty or has more than 200 characters.
func (g *Gnomon) Tag(ctx context.Context, name string, ref Ref, note ...string) (c Coordinate, err error) {
	err = pgtx.QueryRow(ctx, g.db, []any{&c}, "select gnomon.tag($1, $2, $3)", name, string(ref), strings.Join(note, " "))
	return c, refused(err)
}

// MoveTag gives a tag another place; its note stays. History that only the old place kept may be pruned then. [ErrUnknownTag].
func (g *Gnomon) MoveTag(ctx context.Context, name string, ref Ref) (c Coordinate, err error) {
	err = pgtx.QueryRow(ctx, g.db, []any{&c}, "select gnomon.move_tag($1, $2)", name, string(ref))
	return c, refused(err)
}

// RenameTag gives a tag another name. [ErrUnknownTag]; [ErrTagExists]: the name is taken.
func (g *Gnomon) RenameTag(ctx context.Context, name, to string) error {
	_, err := pgtx.Exec(ctx, g.db, "select gnomon.rename_tag($1, $2)", name, to)
	return refused(err)
}

// DropTag drops a tag. History that only it kept may be pruned then. [ErrUnknownTag].
func (g *Gnomon) DropTag(ctx context.Context, name string) error {
	_, err := pgtx.Exec(ctx, g.db, "select gnomon.drop_tag($1)", name)
	return refused(err)
}

// Tags lists the tags, the oldest first.
func (g *Gnomon) Tags(ctx context.Context) ([]Tag, error) {
	return rowsOf(ctx, g.db, pgx.RowToStructByPos[Tag], "select name, coordinate, at, login, note from gnomon.tags()")
}
