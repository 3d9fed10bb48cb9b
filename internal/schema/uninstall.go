package schema

import (
	"context"

	"github.com/annals-db/annals/internal/pgtx"
)

// Uninstall drops p's schema with all that is in it, its data included, and what
// depends on it elsewhere, such as views and triggers that use its functions.
// When p is not installed it does nothing. It returns a *ForeignSchemaError when
// the schema is not p's, and drops nothing then.
func Uninstall(ctx context.Context, db pgtx.DB, p Package) error {
	script, err := p.script("uninstall.sql", nil)
	if err != nil {
		return err
	}
	return p.typed(execute(ctx, db, script), script, nil)
}
