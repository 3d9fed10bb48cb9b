package gnomon

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// limit is an error of PostgreSQL's that comes of the tables of a branch being views.
type limit struct {
	code    string
	message *regexp.Regexp // its first group is the name of the table, where it has one
	reason  string
	says    string // the table is %s
	hint    string
}

var limits = []limit{
	{"42P10", regexp.MustCompile(`no unique or exclusion constraint matching the ON CONFLICT`), "on conflict", "INSERT can't have ON CONFLICT on a branch", "Use Branch.Upsert, or UPDATE first and INSERT where that finds no row."},
	{"42704", regexp.MustCompile(`^constraint ".*" for table "(.*)" does not exist$`), "on conflict", "INSERT can't have ON CONFLICT on a branch", "Use Branch.Upsert, or UPDATE first and INSERT where that finds no row."},
	{"42703", regexp.MustCompile(`column "?(?:.*\.)?(?:ctid|xmin|xmax|cmin|cmax|tableoid)"? does not exist`), "system column", "tables have no system columns on a branch", "Use the columns of the key."},
	{"42809", regexp.MustCompile(`^"(.*)" is not a table$`), "truncate", "TRUNCATE does not work on a branch", "Use DELETE."},
	{"42809", regexp.MustCompile(`^cannot copy from view "(.*)"$`), "copy", "COPY of a table does not work on a branch", "Use COPY (SELECT * FROM the table) TO."},
	{"0A000", regexp.MustCompile(`^cannot execute MERGE on relation "(.*)"$`), "merge", "MERGE does not work on a branch before PostgreSQL 17", "Use Branch.Upsert, or UPDATE, DELETE and INSERT."},
	{"0A000", regexp.MustCompile(`^WHERE CURRENT OF on a view`), "where current of", "WHERE CURRENT OF does not work on a branch", "Name the row by its key."},
	{"0A000", regexp.MustCompile(`^TABLESAMPLE clause can only be applied`), "tablesample", "TABLESAMPLE does not work on a branch", "Use a condition with random()."},
	{"42809", regexp.MustCompile(`cannot (?:be performed|create index|create trigger) on relation "(.*)"$`), "definition", "a branch has no tables of its own to alter", "Alter the table of main, with its schema before its name: branches follow."},
	{"42809", regexp.MustCompile(`^referenced relation "(.*)" is not a table$`), "definition", "a foreign key can't reference a table on a branch", "Name the table of main, with its schema before its name."},
}

// notOn returns ErrNotOnBranch where err comes of a table of the branch being a view; nil where it has nothing to do with that.
func (b *Branch) notOn(sql string, err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return nil
	}
	for _, l := range limits {
		if l.code != pgErr.Code {
			continue
		}
		found := l.message.FindStringSubmatch(pgErr.Message)
		if found == nil {
			continue
		}
		if len(found) == 1 && !b.mentions(sql) || len(found) == 2 && !slices.Contains(b.tableNames(), found[1]) {
			return nil
		}
		e := &Error{Kind: ErrNotOnBranch, Message: l.says + ": " + pgErr.Message, Hint: l.hint, Reason: l.reason, cause: err}
		if len(found) == 2 {
			e.Table = found[1]
		}
		return e
	}
	return nil
}

// tableNames returns the names of the tables of the branch.
func (b *Branch) tableNames() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, view := range b.opened.Tables {
		_, name, _ := strings.Cut(view, ".") // gnomon_branch_1."Order": the schema has no dot
		if strings.HasPrefix(name, `"`) {
			name = strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
		}
		names = append(names, name)
	}
	return names
}

var words = regexp.MustCompile(`\.?\s*(?:"(?:[^"]|"")+"|[\pL_][\pL\d_$]*)`)

// mentions reports whether a statement has the name of a table of the branch in it, without a schema.
func (b *Branch) mentions(sql string) bool {
	names := b.tableNames()
	for _, word := range words.FindAllString(sql, -1) {
		word = strings.TrimSpace(word)
		if strings.HasPrefix(word, `"`) {
			word = strings.ReplaceAll(word[1:len(word)-1], `""`, `"`)
		} else {
			word = strings.ToLower(word)
		}
		if slices.Contains(names, word) {
			return true
		}
	}
	return false
}
