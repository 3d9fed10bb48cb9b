package automerge_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
	"github.com/annals-db/annals/internal/schema"
)

func TestEveryObjectHasAComment(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	for _, object := range must[[]string](t)(schema.Uncommented(t.Context(), pool, "automerge")) {
		t.Errorf("%s has no comment", object)
	}
}

func TestEveryFunctionHasItsPlace(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	const functions = "pg_proc p where p.pronamespace = 'automerge'::regnamespace"
	for what, query := range map[string]string{
		"not in automerge.access":         "select p.oid::regprocedure::text from " + functions + " and p.proname not in (select function from automerge.access)",
		"in automerge.access and no more": "select function from automerge.access where function not in (select p.proname from " + functions + ")",
		"in automerge.access twice":       "select function from automerge.access group by function having count(*) > 1",
		"open to everybody":               "select p.oid::regprocedure::text from " + functions + " and has_function_privilege('public', p.oid, 'execute')",
		"without a search_path":           "select p.oid::regprocedure::text from " + functions + " and p.prokind <> 'a' and not coalesce(p.proconfig::text like '%search_path%', false)",
		"relations open to everybody":     "select c.oid::regclass::text from pg_class c cross join aclexplode(c.relacl) a where c.relnamespace = 'automerge'::regnamespace and a.grantee = 0",
		"tables without policies":         "select c.oid::regclass::text from pg_class c where c.relnamespace = 'automerge'::regnamespace and c.relkind = 'r' and c.relname not in ('document', 'annals_step') and not c.relrowsecurity",
	} {
		for _, name := range column[string](t, pool, query) {
			t.Errorf("%s: %s", what, name)
		}
	}
}

// An ordinary role that may create a schema can install, use, install again beside others, and uninstall.
func TestInstallAsOrdinaryRole(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := pgserver.Database(t)
	admin := must[*pgxpool.Pool](t)(pgxpool.New(ctx, conn))
	defer admin.Close()
	role := pgserver.Role(t, pgserver.Shared(t), "owner")
	run(t, admin, fmt.Sprintf("do $$ begin execute format('grant create on database %%I to %s', current_database()); end $$", role))
	pool := must[*pgxpool.Pool](t)(pgxpool.New(ctx, conn+" user="+role))
	defer pool.Close()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := automerge.Install(ctx, pool); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	store := automerge.New(pool)
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{}))
	ok(t, automerge.Install(ctx, pool)) // keeps the documents
	_ = must[[]automerge.Hash](t)(store.Heads(ctx, id))
	ok(t, automerge.Uninstall(ctx, pool))
	if column[bool](t, admin, "select to_regnamespace('automerge') is not null")[0] {
		t.Error("the schema is still there")
	}
	run(t, pool, must[string](t)(automerge.SQL()))
	_ = must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{}))
}

// No call leaves anything behind in the session.
func TestSessionUnchanged(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	ctx := t.Context()
	conn := connectAs(t, pool.Config().ConnString(), "")
	calls := func(db automerge.DB) {
		store := automerge.New(db)
		id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{}))
		_, _ = store.Apply(ctx, id, []byte("x"))
		_, _ = store.Apply(ctx, uuid.New())
		_, _ = store.Heads(ctx, uuid.New())
		_, _ = store.Changes(ctx, id)
		_, _ = store.Save(ctx, id)
		_, _ = store.Delete(ctx, id)
	}
	pgtxtest.AssertSessionUnchanged(t, conn, func() { calls(conn) })
	tx := must[pgx.Tx](t)(conn.Begin(ctx))
	pgtxtest.AssertSessionUnchanged(t, conn, func() { calls(tx) })
	ok(t, tx.Rollback(ctx))
}
