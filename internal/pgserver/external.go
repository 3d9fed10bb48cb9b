package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
)

// external is a server that somebody else runs.
type external struct {
	base     string // connection string in keyword/value form; what it leaves out, PG* variables add
	database string // the one that the user named
}

// externalFromEnvironment returns the server that the environment names, nil if it names none.
func externalFromEnvironment() *external {
	if text := os.Getenv("DATABASE_URL"); text != "" {
		return &external{base: text}
	}
	for _, name := range []string{"PGHOST", "PGSERVICE"} {
		if os.Getenv(name) != "" {
			return &external{}
		}
	}
	return nil
}

// server connects, to learn the version.
func (e *external) server(ctx context.Context, wanted int) (*Server, error) {
	var err error
	if e.base, err = keywords(e.base); err != nil {
		return nil, fmt.Errorf("pgserver: DATABASE_URL: %w", err)
	}
	config, err := pgx.ParseConfig(e.base)
	if err != nil {
		return nil, fmt.Errorf("pgserver: DATABASE_URL or PGHOST: %w", err)
	}
	e.database = config.Database
	if e.database == "" {
		e.database = config.User
	}
	s := &Server{external: e, created: map[string]bool{}}
	err = s.in(ctx, e.database, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int / 10000").Scan(&s.version)
	})
	if err != nil {
		return nil, fmt.Errorf("pgserver: the server of DATABASE_URL or PGHOST: %w", err)
	}
	if s.version < OldestVersion {
		return nil, fmt.Errorf("pgserver: the server of DATABASE_URL or PGHOST is PostgreSQL %d: %d is the oldest that works",
			s.version, OldestVersion)
	}
	if wanted != 0 && wanted != s.version {
		return nil, fmt.Errorf("pgserver: the server of DATABASE_URL or PGHOST is PostgreSQL %d, but ANNALS_PG=%d: unset one of them",
			s.version, wanted)
	}
	return s, nil
}

// connString names another database on the same server: the later of two equal keywords counts.
func (e *external) connString(database string) string {
	return strings.TrimSpace(e.base + " dbname=" + quote(database))
}

// keywords turns a connection URL into keyword/value form, to which more can be appended. Other text is in that form
// already.
func keywords(text string) (string, error) {
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		return text, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		// Its text would show the password.
		return "", errors.New("not a URL of the form postgres://user:password@host:port/database: percent-encode it, " +
			"or write host=HOST port=PORT user=USER password=PASSWORD dbname=DATABASE")
	}
	var pairs []string
	add := func(key, value string) {
		if value != "" {
			pairs = append(pairs, key+"="+quote(value))
		}
	}
	password, _ := u.User.Password()
	add("host", u.Hostname())
	add("port", u.Port())
	add("user", u.User.Username())
	add("password", password)
	add("dbname", strings.TrimPrefix(u.Path, "/"))
	for key, values := range u.Query() {
		for _, value := range values {
			add(key, value)
		}
	}
	return strings.Join(pairs, " "), nil
}

// quote writes a value of a keyword/value connection string.
func quote(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}
