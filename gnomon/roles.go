package gnomon

import (
	"context"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgtx"
)

// Roles that [CreateRoles] creates. Any other roles do as well: see [Grant].
const (
	ViewerRole   = "gnomon_viewer"   // may read the past
	OperatorRole = "gnomon_operator" // may also set tags and work for consumers of the change feed
	AdminRole    = "gnomon_admin"    // may also track tables, make checkpoints, and prune
)

// CreateRoles creates [ViewerRole], [OperatorRole] and [AdminRole] unless they exist. They can't log in: make people and applications
// members of them. Roles belong to the cluster, so it takes CREATEROLE, which [Install] does not; several databases may do it at once. It grants
// nothing: that is what [Grant] is for, in each database.
func CreateRoles(ctx context.Context, db DB) error {
	return history.CreateRoles(ctx, db, []history.Role{
		{Name: ViewerRole, Purpose: "May read the past of the tables that it may read"},
		{Name: OperatorRole, Purpose: "May read the past, set tags and follow changes"},
		{Name: AdminRole, Purpose: "May decide which tables are tracked and what is pruned"},
	})
}

// Grant lets the role viewer read the past, differences and changes; the role operator also set tags, run the heartbeat and work for consumers of the change feed; and the
// role admin also track tables, make checkpoints, set policies and prune. An empty name stands for no role. The view gnomon.access lists who may execute
// which function.
//
// Rights to the users' tables stay what they are: a role reads the past of what it may read today, row by row. What an admin does to tables is
// done with the rights of whoever installed. Grant is for that role; call it again after an upgrade, and after restoring a dump without privileges: what
// PostgreSQL lets everybody do is taken away. [ErrInvalid]: there is no such role.
func Grant(ctx context.Context, db DB, viewer, operator, admin string) error {
	_, err := pgtx.Exec(ctx, db, "select gnomon.grant_access(nullif($1, ''), nullif($2, ''), nullif($3, ''))", viewer, operator, admin)
	return refused(err)
}
