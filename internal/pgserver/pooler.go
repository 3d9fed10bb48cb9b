package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Pooler starts pgbouncer in transaction mode in front of the server of the connection string and returns the
// connection string of the same database through it. It ends with the test. Without pgbouncer the test is skipped, or
// fails if ANNALS_REQUIRE_PG=1.
//
// pgbouncer before 1.21 knows no prepared statements in transaction mode, so the string asks pgx for
// default_query_exec_mode=exec; anything that caches statements on a connection fails. There are at least two server
// sessions and transactions take turns on them: what a transaction leaves in its session, the next one doesn't find.
func Pooler(t testing.TB, connString string) string {
	t.Helper()
	program, err := findPooler()
	if err != nil {
		missing(t, "no transaction-mode pooler to test with: install pgbouncer")
	}
	p, err := startPooler(t.Context(), program, connString)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.guard.end(); err != nil {
			t.Error(err)
		}
	})
	return p.connString
}

// findPooler looks in /usr/sbin too, which ordinary users seldom have on PATH.
func findPooler() (string, error) {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/pgbouncer")
}

type pooler struct {
	guard      *guard
	connString string
}

func startPooler(ctx context.Context, program, connString string) (*pooler, error) {
	config, err := pgx.ParseConfig(connString)
	if err != nil {
		return nil, err
	}
	c, err := openCache()
	if err != nil {
		return nil, err
	}
	f, err := c.newFolder()
	if err != nil {
		return nil, err
	}
	ini := filepath.Join(f.path, "pgbouncer.ini")
	if err := configurePooler(c.who, f, ini, config); err != nil {
		f.discard()
		return nil, err
	}
	// There is nothing to lose in it, so it is ended with SIGKILL.
	g, err := newGuard(c.who, f, "KILL", program, ini)
	if err != nil {
		f.discard()
		return nil, err
	}
	p := &pooler{guard: g, connString: fmt.Sprintf(
		"host=%s port=%d user=%s sslmode=disable default_query_exec_mode=exec dbname=%s",
		quote(f.path), poolerPort, quote(config.User), quote(config.Database))}
	if err := p.start(ctx, f); err != nil {
		g.end()
		return nil, err
	}
	return p, nil
}

const poolerPort = 6432

// configurePooler writes pgbouncer's files. Every role may connect: those that are not in the list of users are
// looked up on the server as the user of the connection string.
func configurePooler(who account, f *folder, ini string, config *pgx.ConnConfig) error {
	users := filepath.Join(f.path, "users.txt")
	entry := strings.NewReplacer(`"`, `""`)
	list := fmt.Sprintf("\"%s\" \"%s\"\n", entry.Replace(config.User), entry.Replace(config.Password))
	if err := os.WriteFile(users, []byte(list), 0o600); err != nil {
		return err
	}
	server := "* = host=" + quoteINI(config.Host) + " port=" + strconv.Itoa(int(config.Port)) +
		" auth_user=" + quoteINI(config.User)
	lines := []string{
		"[databases]",
		server,
		"[pgbouncer]",
		"pool_mode = transaction",
		"unix_socket_dir = " + f.path,
		"listen_port = " + strconv.Itoa(poolerPort),
		"auth_type = trust",
		"auth_file = " + users,
		"max_client_conn = 500",
		"default_pool_size = 20",
		"min_pool_size = 2",
		"server_round_robin = 1",
		"ignore_startup_parameters = extra_float_digits",
	}
	if err := os.WriteFile(ini, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return who.own(f.path)
}

func quoteINI(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }

// start waits until two transactions get through side by side, which opens the two server sessions.
func (p *pooler) start(ctx context.Context, f *folder) error {
	if _, err := p.guard.ask(ctx, "start"); err != nil {
		return err
	}
	for {
		err := p.tryTwo(ctx)
		if err == nil {
			return nil
		}
		status, gone := p.guard.ask(ctx, "status")
		if gone == nil {
			gone = pause(ctx)
		}
		if gone != nil || status == "ended" {
			return fmt.Errorf("pgserver: start pgbouncer: %w; %s", errors.Join(gone, err), f.logEnd())
		}
	}
}

func (p *pooler) tryTwo(ctx context.Context) error {
	var both []*pgx.Conn
	for range 2 {
		conn, err := pgx.Connect(ctx, p.connString)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
			return err
		}
		both = append(both, conn)
	}
	for _, conn := range both {
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil { // else pgbouncer closes the session
			return err
		}
	}
	return nil
}
