package volvra

import (
	"context"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgtx"
)

// Roles that [CreateRoles] creates. Any other roles do as well: see [Grant].
const (
	ViewerRole   = "volvra_viewer"   // may read histories
	OperatorRole = "volvra_operator" // may also undo
	AdminRole    = "volvra_admin"    // may also cover, seal, erase and purge
)

// CreateRoles creates [ViewerRole], [OperatorRole] and [AdminRole] unless they exist. They can't log in: make people and applications
// members of them. Roles are shared by all databases of a cluster, so this needs the attribute CREATEROLE, which [Install] does not, and
// may be done from several databases at once. It grants them nothing: [Grant] does, in each database.
func CreateRoles(ctx context.Context, db DB) error {
	return history.CreateRoles(ctx, db, []history.Role{
		{Name: ViewerRole, Purpose: "May read histories of the tables that it may read"},
		{Name: OperatorRole, Purpose: "May read histories and undo changes"},
		{Name: AdminRole, Purpose: "May decide which tables have their history kept"},
	})
}

// Grant lets the role viewer read histories, preview, and verify; the role operator also undo, redo and set marks; and the role admin also
// cover tables, seal, erase, and purge. An empty name stands for no role. The view volvra.access lists who may execute which function.
//
// No role is granted anything on the users' tables: of a history it sees what it may read of the table, row by row, and it undoes what it
// may change. So it also takes USAGE on the schema and SELECT on the table, and for an undo INSERT, UPDATE or DELETE; else PostgreSQL's own
// error says what is missing. Covering works with the rights of whoever installed: an admin can cover any table that that role owns.
//
// Grant is for the role that installed. Call it again after an upgrade, which may have brought new functions, and after restoring a dump
// without privileges: what PostgreSQL lets everybody do (PUBLIC) is taken away. A role that does not exist is [ErrInvalid].
func Grant(ctx context.Context, db DB, viewer, operator, admin string) error {
	_, err := pgtx.Exec(ctx, db, "select volvra.grant_access($1, $2, $3)", optional(viewer), optional(operator), optional(admin))
	return refused(err)
}

func optional(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}
