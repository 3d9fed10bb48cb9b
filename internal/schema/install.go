package schema

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/pgtx"
)

// SQL returns the statement that [Install] executes, for applying it with psql
// or another tool. It is one statement; see the package documentation.
func SQL(p Package) (string, error) {
	steps, err := p.steps()
	if err != nil {
		return "", err
	}
	return p.script("install.sql", steps)
}

// Install installs p, or upgrades it to the version that its steps describe, as
// a whole or not at all. When that version is installed it changes nothing. The
// role needs the right to create a schema in the database, or for an upgrade to
// own the objects. In a caller's transaction it becomes part of it, and a failure
// leaves the transaction usable.
//
// It returns a *NewerError when a newer version is installed, a
// *ForeignSchemaError when the schema exists and is not p's, and a *StepError
// when a step fails.
func Install(ctx context.Context, db pgtx.DB, p Package) error {
	steps, err := p.steps()
	if err != nil {
		return err
	}
	script, err := p.script("install.sql", steps)
	if err != nil {
		return err
	}
	return p.typed(execute(ctx, db, script), script, steps)
}

const lockNotAvailable = "55P03"

// execute runs a script, again when it lost against others and the transaction
// is its own.
func execute(ctx context.Context, db pgtx.DB, script string) error {
	once := func() error {
		return pgtx.Guard(ctx, db, func(db pgtx.DB) error {
			_, err := db.Exec(ctx, script)
			return err
		})
	}
	if pgtx.InTx(db) {
		return once()
	}
	return pgtx.Retry(ctx, once, lockNotAvailable)
}

//go:embed sql/installed.sql
var installedSQL string

// Installed returns the version of p that is installed, 0 when none is. It
// returns a *ForeignSchemaError when the schema exists and is not p's.
func Installed(ctx context.Context, db pgtx.DB, p Package) (version int, err error) {
	var schemaExists, stepsExist bool
	err = pgtx.QueryRow(ctx, db, []any{&schemaExists, &stepsExist}, installedSQL, p.Schema)
	if err != nil || !schemaExists {
		return 0, err
	}
	foreign := &ForeignSchemaError{Package: p.Name, Schema: p.Schema}
	if !stepsExist {
		return 0, foreign
	}
	var owner string
	err = pgtx.QueryRow(ctx, db, []any{&version, &owner}, fmt.Sprintf(
		"select version, package from %s order by version desc limit 1", pgx.Identifier{p.Schema, "annals_step"}.Sanitize()))
	switch {
	case err != nil:
		return 0, err
	case owner != p.Name:
		return 0, foreign
	}
	return version, nil
}

// SQLSTATEs that the scripts raise.
const (
	codeNewer   = "SI001"
	codeForeign = "SI002"
)

// typed turns an error of a script into one of this package's.
func (p Package) typed(err error, script string, steps []step) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	switch pgErr.Code {
	case codeNewer:
		installed, _ := strconv.Atoi(pgErr.Detail)
		return &NewerError{Package: p.Name, Installed: installed, Known: len(steps)}
	case codeForeign:
		return &ForeignSchemaError{Package: p.Name, Schema: p.Schema}
	}
	if name := failedStep(pgErr, script, steps); name != "" {
		return &StepError{Package: p.Name, Step: name, Err: err}
	}
	return err
}

// lineInScript holds in whichever language the server speaks.
var lineInScript = regexp.MustCompile(`inline_code_block\D+(\d+)`)

// failedStep finds out which step was being executed when the script failed: the
// outermost place that the error's context names is a line of the script.
func failedStep(pgErr *pgconn.PgError, script string, steps []step) string {
	matches := lineInScript.FindAllStringSubmatch(pgErr.Where, -1)
	if len(matches) == 0 {
		return ""
	}
	line, _ := strconv.Atoi(matches[len(matches)-1][1])
	_, body, _ := strings.Cut(script, installTag)
	lines := strings.SplitN(body, "\n", line+1)
	for _, s := range steps {
		if line <= len(lines) && strings.Contains(lines[line-1], "execute "+s.Tag) {
			return s.Name
		}
	}
	return ""
}
