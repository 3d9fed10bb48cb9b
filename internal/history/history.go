package history

import (
	"context"
	"embed"

	"github.com/annals-db/annals/internal/pgtx"
	"github.com/annals-db/annals/internal/schema"
)

//go:embed sql/*.sql
var files embed.FS

// Objects is the schema annals, which holds the histories of all tracked tables.
var Objects = schema.Package{Name: "history", Schema: "annals", Steps: files}

// Install creates or upgrades the schema annals.
func Install(ctx context.Context, db pgtx.DB) error {
	return schema.Install(ctx, db, Objects)
}
