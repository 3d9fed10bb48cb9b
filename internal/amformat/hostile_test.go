package amformat

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// judge reads bytes by every way that bytes come in, as far as they get.
func judge(ctx context.Context, data []byte, limits Limits) error {
	chunks, err := SplitChunks(data)
	if err != nil {
		return err
	}
	for _, c := range chunks {
		if c.Kind == KindDocument {
			d, err := ParseDocument(c.Bytes, limits)
			if err != nil {
				return err
			}
			rows := d.Rows()
			for rows.Next() {
			}
			_, proven := d.Changes(ctx)
			if err := rows.Err(); err != nil {
				if proven == nil {
					return fmt.Errorf("%w, and yet proven", err)
				}
				return err
			}
			if proven != nil {
				return proven
			}
			continue
		}
		if _, err := ParseHeader(c.Bytes, limits); err != nil {
			return err
		}
		if _, err := ParseChange(c.Bytes, limits); err != nil {
			return err
		}
	}
	return nil
}

// typed tells whether an error is one that this package promises.
func typed(err error) bool {
	for _, kind := range []error{ErrMalformed, ErrChecksum, ErrTruncated, ErrUnsupported, ErrHash, ErrMissing, ErrLimit} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// repaired is the chunk with the checksum that its content has.
func repaired(chunk []byte) []byte {
	chunk = slices.Clone(chunk)
	if len(chunk) < frameMin || Kind(chunk[8]) == KindCompressed {
		return chunk
	}
	sum := sha256.Sum256(chunk[8:])
	copy(chunk[4:8], sum[:4])
	return chunk
}

func TestCrashesAndBombs(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits Limits
		err    error
	}{
		{"crash-load-0.bin", Limits{}, nil}, {"crash-load-1.bin", Limits{}, nil}, {"crash-load-2.bin", Limits{}, nil},
		{"crash-inc-0.bin", Limits{}, nil}, {"crash-inc-1.bin", Limits{}, nil}, {"crash-inc-2.bin", Limits{}, nil},
		{"bundle.am", Limits{}, ErrUnsupported},
		{"deep.am", Limits{}, ErrLimit},
		{"bomb.am", Limits{Ops: 50_000}, ErrLimit}, {"bomb.chunk", Limits{Ops: 50_000}, ErrLimit},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := judge(t.Context(), fixture(t, test.name), test.limits)
			t.Log(err)
			if !typed(err) || test.err != nil && !errors.Is(err, test.err) {
				t.Fatalf("%v, and not %v", err, test.err)
			}
		})
	}
}
