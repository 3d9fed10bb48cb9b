package ledger

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/schema"
)

// An owner can't only disable a guard, but also replace what it does. So the functions in the database are compared with those that this
// program would install. Those of another version than its own it does not know.
func (l *Ledger) changedFunctions(ctx context.Context) (changed []Problem, err error) {
	version, bodies, err := functionBodies()
	if err != nil {
		return nil, err
	}
	installed, err := schema.Installed(ctx, l.db, pkg)
	if err != nil || installed != version {
		return nil, err
	}
	type function struct{ name, body string }
	functions, err := list(ctx, l, func(row pgx.CollectableRow) (f function, err error) {
		err = row.Scan(&f.name, &f.body)
		return f, err
	}, "select proname::pg_catalog.text, prosrc from pg_catalog.pg_proc where pronamespace operator(pg_catalog.=) 'ledger'::pg_catalog.regnamespace order by 1")
	for _, f := range functions {
		if body, known := bodies[f.name]; known && f.body != body {
			changed = append(changed, Problem{Kind: ProblemFunction, Message: fmt.Sprintf("function ledger.%s is not as it was installed: this program has another text for it", f.name)})
		}
	}
	return changed, err
}

// functionBodies returns the number of the last step, which is the version of the schema, and what the steps put between the dollar quotes
// of functions.
func functionBodies() (version int, bodies map[string]string, err error) {
	steps, err := fs.Glob(files, "sql/[0-9]*.sql")
	bodies = map[string]string{}
	for _, step := range steps {
		text, err := fs.ReadFile(files, step)
		if err != nil {
			return 0, nil, err
		}
		for _, object := range strings.Split(string(text), "\ncreate ")[1:] {
			signature, isFunction := strings.CutPrefix(strings.TrimPrefix(object, "or replace "), "function ledger.")
			name, _, _ := strings.Cut(signature, "(")
			if parts := strings.Split(signature, "$$"); isFunction && len(parts) == 3 {
				bodies[name] = parts[1]
			}
		}
	}
	return len(steps), bodies, err
}
