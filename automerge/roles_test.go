//go:build cgo

package automerge_test

import (
	"bytes"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/pgserver"
)

// Policies on automerge.document decide: who sees a document reads it, who may update it writes it, who may delete it deletes it.
func TestRowLevelSecurity(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	server := pgserver.Shared(t)
	roles := map[string]string{}
	as := map[string]*automerge.Store{}
	conn := map[string]automerge.DB{}
	for _, name := range []string{"ada", "bob", "reader", "nobody"} {
		roles[name] = pgserver.Role(t, server, name)
		conn[name] = connectAs(t, pool.Config().ConnString(), roles[name])
		as[name] = automerge.New(conn[name])
	}
	ok(t, automerge.Grant(ctx, pool, roles["reader"], roles["ada"]))
	ok(t, automerge.Grant(ctx, pool, "", roles["bob"]))
	refuses(t, automerge.Grant(ctx, pool, "no such role", ""), automerge.ErrInvalid)
	run(t, pool, "alter table automerge.document enable row level security",
		"create policy own on automerge.document using (owner = current_user)",
		"create policy public on automerge.document for select using (tenant = 'public')")
	chunks := changesOf(t, written(t, random(t), 2, 2))
	all := bytes.Join(chunks, nil)
	secret := must[uuid.UUID](t)(as["ada"].Create(ctx, automerge.CreateParams{Content: chunks[0]}))
	shown := must[uuid.UUID](t)(as["ada"].Create(ctx, automerge.CreateParams{Content: chunks[0], Tenant: "public"}))
	_ = must[automerge.Applied](t)(as["ada"].Apply(ctx, secret, all))
	if _, err := as["ada"].Create(ctx, automerge.CreateParams{Owner: "somebody"}); sqlState(err) != "42501" {
		t.Errorf("a document for somebody else: %v", err)
	}
	for _, name := range []string{"bob", "reader"} {
		s := as[name]
		_, err := s.Heads(ctx, secret)
		refuses(t, err, automerge.ErrNotFound)
		_, err = s.Save(ctx, secret)
		refuses(t, err, automerge.ErrNotFound)
		if n := len(must[[]automerge.Change](t)(s.Changes(ctx, shown))); n != 1 {
			t.Errorf("%s sees %d changes", name, n)
		}
		if n := column[int](t, conn[name], "select count(*)::int from automerge.change")[0]; n != 1 {
			t.Errorf("%s sees %d changes in the table", name, n)
		}
		for _, id := range []uuid.UUID{secret, shown} {
			if _, err := s.Apply(ctx, id, all); err == nil {
				t.Errorf("%s wrote", name)
			}
			if n, err := s.Delete(ctx, id); n > 0 {
				t.Errorf("%s deleted: %v", name, err)
			}
		}
	}
	_, err := as["bob"].Apply(ctx, shown, all)
	refuses(t, err, automerge.ErrNotFound)
	for _, sql := range []string{
		"insert into automerge.change select * from automerge.change", "update automerge.document set heads = '{}'", "delete from automerge.change", "select automerge.grant_access(null, null)",
		"insert into automerge.queue (doc, chunk) select id, '' from automerge.document", "insert into automerge.document (heads) values ('{}')", "truncate automerge.document cascade",
		"select automerge.write_changes(null, null)", "insert into automerge.projection select id, '{}' from automerge.document",
	} {
		for _, name := range []string{"ada", "bob", "reader", "nobody"} {
			if _, err := conn[name].Exec(ctx, sql); sqlState(err) != "42501" {
				t.Errorf("%s: %s: %v", name, sql, err)
			}
		}
	}
	// Writing through the view finds no more than the policies let be updated.
	if got := column[uuid.UUID](t, conn["bob"], "update automerge.writing set hash = '{}' returning id"); len(got) > 0 {
		t.Errorf("bob writes %v", got)
	}
	if _, err := as["nobody"].Heads(ctx, shown); sqlState(err) != "42501" {
		t.Errorf("nobody reads: %v", err)
	}
	if n := must[int64](t)(as["ada"].Delete(ctx, secret, shown)); n != 2 {
		t.Errorf("%d deleted", n)
	}
	_, err = store.Heads(ctx, secret)
	refuses(t, err, automerge.ErrNotFound)
}

func TestCreateRolesIsIdempotent(t *testing.T) {
	t.Parallel()
	server := pgserver.New(t, pgserver.Options{}) // a cluster whose roles are nobody else's
	conn := connectAs(t, server.ConnString(must[string](t)(server.CreateDatabase(t.Context()))), "")
	for range 2 {
		ok(t, automerge.CreateRoles(t.Context(), conn))
	}
	ok(t, automerge.Install(t.Context(), conn))
	ok(t, automerge.Grant(t.Context(), conn, automerge.ReaderRole, automerge.WriterRole))
}
