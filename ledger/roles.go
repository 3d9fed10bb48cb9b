package ledger

import (
	"context"
	_ "embed"

	"github.com/annals-db/annals/internal/pgtx"
)

// Roles that [CreateRoles] creates. Any other roles do as well: see [Grant].
const (
	ReaderRole = "ledger_reader" // may read the books
	WriterRole = "ledger_writer" // may read the books and book
)

//go:embed roles.sql
var createRolesSQL string

// CreateRoles creates [ReaderRole] and [WriterRole] unless they exist. They can't log in: make the users of the application members of
// them. Roles are shared by all databases of a cluster, so this needs the attribute CREATEROLE, which [Install] does not, and may be done
// from several databases at once. It grants them nothing: [Grant] does, in each database.
func CreateRoles(ctx context.Context, db DB) error {
	_, err := pgtx.Exec(ctx, db, createRolesSQL)
	return err
}

// Grant lets the role reader read the books and verify them, and the role writer also book, open, change and close accounts, and register
// assets; an empty name stands for no role. Nobody is granted the right to write a table: functions that book run with the rights of the
// books' owner.
//
// Some things stay with the owner: closing and reopening periods, switching NOTIFY, and granting. To delegate one of them, grant EXECUTE on
// its function (ledger.close_period, for example) by SQL. Functions that book are for trusted applications: a writer may move any
// account's money within its limits.
//
// Grant is for the owner of the books. Call it again after an upgrade, which may have brought new functions, and after restoring a dump
// without privileges: what PostgreSQL lets everybody do (PUBLIC) is taken away. A role that does not exist is [ErrInvalid].
func Grant(ctx context.Context, db DB, reader, writer string) error {
	_, err := pgtx.Exec(ctx, db, "select ledger.grant_access($1, $2)", optional(reader), optional(writer))
	return refused(err)
}
