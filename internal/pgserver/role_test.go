package pgserver

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestRoleEndsWithTheTest(t *testing.T) {
	s := Shared(t)
	admin := connect(t, s.ConnString(s.adminDatabase()))
	var role string
	database := Database(t)
	t.Run("a test", func(t *testing.T) {
		role = Role(t, s, `a "b`)
		owner := connect(t, database)
		execute(t, owner, "GRANT CREATE ON SCHEMA public TO "+pgx.Identifier{role}.Sanitize())
		conn := connect(t, database+" user="+quote(role))
		if got := value[string](t, conn, "SELECT current_user::text"); got != role {
			t.Errorf("connected as %q, not %q", got, role)
		}
		execute(t, conn, `CREATE TABLE "its o""wn" (n int)`)
		if value[bool](t, conn, "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user") {
			t.Error("the role may do more than log in")
		}
	})
	var there bool
	err := admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role).Scan(&there)
	if err != nil || there {
		t.Errorf("role %s outlived its test: %v", role, err)
	}
	if got := value[int](t, connect(t, database), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); got != 0 {
		t.Error("the role's table outlived the role")
	}
}
