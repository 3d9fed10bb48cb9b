package schema_test

import (
	"testing"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/schema"
)

func TestUninstall(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgserver.Pool(t)
	must(t, schema.Install(ctx, pool, library(3)))
	exec(t, pool, "create view mine as select * from library.book; create table kept ()")

	tx, err := pool.Begin(ctx)
	must(t, err)
	must(t, schema.Uninstall(ctx, tx, library(3)))
	wantVersion(t, tx, library(3), 0)
	must(t, tx.Rollback(ctx))
	wantVersion(t, pool, library(3), 3)

	for range 2 { // the second time there is nothing to do
		must(t, schema.Uninstall(ctx, pool, library(3)))
	}
	if !value[bool](t, pool, "select to_regnamespace('library') is null and to_regclass('mine') is null and to_regclass('kept') is not null") {
		t.Error("Uninstall dropped too little or too much")
	}
	must(t, schema.Install(ctx, pool, library(1)))
}
