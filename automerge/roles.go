package automerge

import (
	"context"
	_ "embed"

	"github.com/annals-db/annals/internal/pgtx"
)

// Roles that [CreateRoles] creates. Any other roles do as well: see [Grant].
const (
	ReaderRole = "automerge_reader" // may read documents
	WriterRole = "automerge_writer" // may read and write documents
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

// Grant lets the role reader read documents and the role writer also create, write and delete them; an empty name stands for no role. Which
// documents is for your policies on automerge.document to say, once you enable row-level security there: what may be selected is read,
// what may be updated is written, what may be deleted is deleted, and what belongs to a document follows it. The owner of the
// schema sees all documents.
//
// Nobody is granted the right to write another table. A writer is trusted with one thing: to put changes into automerge.writing that are valid, as
// this package does. Who is not may call automerge.append, which lets nothing into a document that a worker has not validated.
//
// Grant is for the owner of the schema. Call it again after an upgrade, which may have brought new functions, and after restoring a dump
// without privileges: what PostgreSQL lets everybody do (PUBLIC) is taken away. A role that does not exist is [ErrInvalid].
func Grant(ctx context.Context, db DB, reader, writer string) error {
	_, err := pgtx.Exec(ctx, db, "select automerge.grant_access(nullif($1, ''), nullif($2, ''))", reader, writer)
	return refused(err)
}
