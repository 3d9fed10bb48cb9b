package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Standby starts a streaming standby of the running server, on a base backup taken now, and returns it when it has
// replayed everything that was committed before the call. It has the settings of its primary, its own folder and its
// own connection strings. Stop each of them; the primary's Stop does not stop its standbys.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	if s.own == nil {
		return nil, ErrNotOwned
	}
	f, err := s.own.cache.newFolder()
	if err != nil {
		return nil, err
	}
	slot := unique("standby")
	if err := s.baseBackup(ctx, slot, f.data()); err != nil {
		f.discard()
		return nil, errors.Join(err, s.dropSlot(context.WithoutCancel(ctx), slot))
	}
	// Over the primary's settings, which in turn name another primary if it was a standby itself.
	all := maps.Clone(s.own.settings)
	all["primary_conninfo"] = fmt.Sprintf("host=%s port=%d user=%s", quote(s.own.folder.path), port, superuser)
	all["primary_slot_name"] = slot
	standby, err := launch(ctx, &own{
		cache: s.own.cache, binaries: s.own.binaries, settings: all, folder: f, primary: s, slot: slot,
	})
	if err != nil {
		return nil, errors.Join(err, s.dropSlot(context.WithoutCancel(ctx), slot))
	}
	if err := standby.CatchUp(ctx); err != nil {
		return nil, errors.Join(err, standby.Stop())
	}
	return standby, nil
}

// baseBackup copies the running server's data folder, as pg_basebackup would; not every build has that program. The
// slot keeps what is written during and after the copy until the standby has received it.
func (s *Server) baseBackup(ctx context.Context, slot, data string) error {
	err := s.in(ctx, s.adminDatabase(), func(conn *pgx.Conn) error {
		var label, tablespaces string
		_, err := conn.Exec(ctx, "SELECT pg_create_physical_replication_slot($1, immediately_reserve => true)", slot)
		if err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "SELECT pg_backup_start('standby', fast => true)"); err != nil {
			return err
		}
		if err := copyTree(s.own.cache.who, s.DataDir(), data, notBackedUp); err != nil {
			return err
		}
		// Last, as the server updates it: what it says must not be older than the files copied before.
		control := filepath.Join("global", "pg_control")
		if err := copyFile(filepath.Join(s.DataDir(), control), filepath.Join(data, control)); err != nil {
			return err
		}
		err = conn.QueryRow(ctx, "SELECT labelfile, spcmapfile FROM pg_backup_stop(wait_for_archive => false)").
			Scan(&label, &tablespaces)
		if err != nil {
			return err
		}
		if strings.TrimSpace(tablespaces) != "" {
			return errors.New("the server has tablespaces, which lie outside its data folder")
		}
		if err := os.WriteFile(filepath.Join(data, "backup_label"), []byte(label), 0o600); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o600)
	})
	if err != nil {
		return fmt.Errorf("pgserver: base backup: %w", err)
	}
	return s.own.cache.who.own(data)
}

// notBackedUp tells what belongs to the running server only, or is copied separately.
func notBackedUp(name string) bool {
	switch filepath.ToSlash(name) {
	case "postmaster.pid", "postmaster.opts", "global/pg_control":
		return true
	}
	// These folders are needed, but empty.
	return slices.Contains([]string{
		"pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans",
	}, filepath.Dir(name)) || strings.HasPrefix(filepath.Base(name), "pgsql_tmp")
}

// CatchUp waits until a standby has replayed everything that was committed on its primary before the call.
func (s *Server) CatchUp(ctx context.Context) error {
	if s.own == nil {
		return ErrNotOwned
	}
	if s.own.primary == nil {
		return errors.New("pgserver: not a standby, so there is nothing to catch up with: call Standby first")
	}
	var written string
	err := s.own.primary.in(ctx, s.adminDatabase(), func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&written)
	})
	if err != nil {
		return fmt.Errorf("pgserver: read the primary's position: %w", err)
	}
	return s.in(ctx, s.adminDatabase(), func(conn *pgx.Conn) error {
		for {
			var reached bool
			err := conn.QueryRow(ctx, "SELECT coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)", written).
				Scan(&reached)
			if err != nil {
				return fmt.Errorf("pgserver: read the standby's position: %w", err)
			}
			if reached {
				return nil
			}
			if err := pause(ctx); err != nil {
				return err
			}
		}
	})
}

// Promote ends a standby's recovery and waits until it accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	if s.own == nil {
		return ErrNotOwned
	}
	return s.in(ctx, s.adminDatabase(), func(conn *pgx.Conn) error {
		// pg_promote's own limit is 60 s; the caller's context is the limit here.
		if _, err := conn.Exec(ctx, "SELECT pg_promote(wait => false)"); err != nil {
			return fmt.Errorf("pgserver: promote: %w", err)
		}
		for {
			var recovering bool
			if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&recovering); err != nil {
				return fmt.Errorf("pgserver: promote: %w", err)
			}
			if !recovering {
				return nil
			}
			if err := pause(ctx); err != nil {
				return err
			}
		}
	})
}

// leave drops the slot of a standby that was stopped, so that its primary keeps no more for it.
func (o *own) leave() error {
	if o.primary == nil || o.primary.Pid() == 0 {
		return nil
	}
	return o.primary.dropSlot(context.Background(), o.slot)
}

// dropSlot drops a slot if it exists. It waits for the primary to notice that the standby is gone.
func (s *Server) dropSlot(ctx context.Context, slot string) error {
	return s.in(ctx, s.adminDatabase(), func(conn *pgx.Conn) error {
		for {
			_, err := conn.Exec(ctx,
				"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1", slot)
			var inUse *pgconn.PgError
			if !errors.As(err, &inUse) || inUse.Code != objectInUse {
				return err
			}
			if err := pause(ctx); err != nil {
				return err
			}
		}
	})
}

const objectInUse = "55006"
