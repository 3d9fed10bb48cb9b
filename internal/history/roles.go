package history

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/pgtx"
)

// Role is a role of a package's.
type Role struct {
	Name    string
	Purpose string // becomes its comment
}

// CreateRoles creates the roles that do not exist, without LOGIN. It takes CREATEROLE. Several databases of a cluster may do it at once: who loses finds
// the role there.
func CreateRoles(ctx context.Context, db pgtx.DB, roles []Role) error {
	for _, role := range roles {
		err := pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
			var create, comment string
			err := tx.QueryRow(ctx, `select format('create role %I nologin', $1::text), format('comment on role %I is %L', $1::text, $2::text)
				where not exists (select from pg_catalog.pg_roles where rolname = $1)`, role.Name, role.Purpose).Scan(&create, &comment)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err == nil {
				_, err = tx.Exec(ctx, create)
			}
			if err == nil {
				_, err = tx.Exec(ctx, comment)
			}
			return err
		})
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && (pgErr.Code == "42710" || pgErr.Code == "23505") {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}
