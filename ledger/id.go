package ledger

import (
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Identities are UUIDs, of version 7 when this package makes them. Their text form is a TypeID
// (github.com/jetify-com/typeid, version 0.3): a prefix for the kind, then the UUID in Crockford's base 32. Parsing takes that form
// and a plain UUID; the prefix of another kind is an error that matches [ErrInvalid].
type (
	// AccountID identifies an account: acct_….
	AccountID uuid.UUID
	// TransferID identifies a transfer: xfer_….
	TransferID uuid.UUID
	// JournalID identifies a journal entry: jrnl_….
	JournalID uuid.UUID
	// HoldID identifies a hold: hold_….
	HoldID uuid.UUID
)

const (
	accountPrefix  = "acct"
	transferPrefix = "xfer"
	journalPrefix  = "jrnl"
	holdPrefix     = "hold"
)

// NewAccountID returns a fresh id.
func NewAccountID() AccountID { return AccountID(newUUID()) }

// NewTransferID returns a fresh id. Make it once per request and keep it for the retries.
func NewTransferID() TransferID { return TransferID(newUUID()) }

// NewJournalID returns a fresh id.
func NewJournalID() JournalID { return JournalID(newUUID()) }

// NewHoldID returns a fresh id.
func NewHoldID() HoldID { return HoldID(newUUID()) }

func newUUID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// ParseAccountID reads an account's id in text form or as a UUID.
func ParseAccountID(s string) (AccountID, error) {
	id, err := parse(accountPrefix, s)
	return AccountID(id), err
}

// ParseTransferID reads a transfer's id in text form or as a UUID.
func ParseTransferID(s string) (TransferID, error) {
	id, err := parse(transferPrefix, s)
	return TransferID(id), err
}

// ParseJournalID reads a journal entry's id in text form or as a UUID.
func ParseJournalID(s string) (JournalID, error) {
	id, err := parse(journalPrefix, s)
	return JournalID(id), err
}

// ParseHoldID reads a hold's id in text form or as a UUID.
func ParseHoldID(s string) (HoldID, error) {
	id, err := parse(holdPrefix, s)
	return HoldID(id), err
}

// String returns the text form, acct_….
func (id AccountID) String() string { return format(accountPrefix, uuid.UUID(id)) }

// String returns the text form, xfer_….
func (id TransferID) String() string { return format(transferPrefix, uuid.UUID(id)) }

// String returns the text form, jrnl_….
func (id JournalID) String() string { return format(journalPrefix, uuid.UUID(id)) }

// String returns the text form, hold_….
func (id HoldID) String() string { return format(holdPrefix, uuid.UUID(id)) }

// IsZero reports whether the id is unset.
func (id AccountID) IsZero() bool { return id == AccountID{} }

// IsZero reports whether the id is unset.
func (id TransferID) IsZero() bool { return id == TransferID{} }

// IsZero reports whether the id is unset.
func (id JournalID) IsZero() bool { return id == JournalID{} }

// IsZero reports whether the id is unset.
func (id HoldID) IsZero() bool { return id == HoldID{} }

// MarshalText returns the text form.
func (id AccountID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// MarshalText returns the text form.
func (id TransferID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// MarshalText returns the text form.
func (id JournalID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// MarshalText returns the text form.
func (id HoldID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the text form or a UUID.
func (id *AccountID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseAccountID(string(b))
	return
}

// UnmarshalText reads the text form or a UUID.
func (id *TransferID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseTransferID(string(b))
	return
}

// UnmarshalText reads the text form or a UUID.
func (id *JournalID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseJournalID(string(b))
	return
}

// UnmarshalText reads the text form or a UUID.
func (id *HoldID) UnmarshalText(b []byte) (err error) { *id, err = ParseHoldID(string(b)); return }

// Value lets queries of the application's own take the id as a uuid.
func (id AccountID) Value() (driver.Value, error) { return uuid.UUID(id).Value() }

// Value lets queries of the application's own take the id as a uuid.
func (id TransferID) Value() (driver.Value, error) { return uuid.UUID(id).Value() }

// Value lets queries of the application's own take the id as a uuid.
func (id JournalID) Value() (driver.Value, error) { return uuid.UUID(id).Value() }

// Value lets queries of the application's own take the id as a uuid.
func (id HoldID) Value() (driver.Value, error) { return uuid.UUID(id).Value() }

// Scan reads a uuid column.
func (id *AccountID) Scan(src any) error { return (*uuid.UUID)(id).Scan(src) }

// Scan reads a uuid column.
func (id *TransferID) Scan(src any) error { return (*uuid.UUID)(id).Scan(src) }

// Scan reads a uuid column.
func (id *JournalID) Scan(src any) error { return (*uuid.UUID)(id).Scan(src) }

// Scan reads a uuid column.
func (id *HoldID) Scan(src any) error { return (*uuid.UUID)(id).Scan(src) }

// pgUUID is how all ids travel: a type that pgx knows in every query mode. The zero id is NULL.
func pgUUID[ID ~[16]byte](id ID) pgtype.UUID {
	return pgtype.UUID{Bytes: id, Valid: id != ID{}}
}

const base32Digits = "0123456789abcdefghjkmnpqrstvwxyz"

// 128 bits in 26 digits of 5: the first digit carries only 3 of them.
const base32Len = 26

func format(prefix string, id uuid.UUID) string {
	var b strings.Builder
	b.WriteString(prefix)
	b.WriteByte('_')
	for i := range base32Len {
		var digit byte
		for bit := 5*i - 2; bit < 5*i+3; bit++ { // bits -2 and -1 are the padding
			digit <<= 1
			if bit >= 0 {
				digit |= id[bit/8] >> (7 - bit%8) & 1
			}
		}
		b.WriteByte(base32Digits[digit])
	}
	return b.String()
}

func parse(prefix, s string) (id uuid.UUID, err error) {
	kind, digits, found := strings.Cut(s, "_")
	if !found {
		if id, err = uuid.Parse(s); err != nil || len(s) != len(uuid.UUID{}.String()) {
			return uuid.UUID{}, badID(prefix, s)
		}
		return id, nil
	}
	if kind != prefix || len(digits) != base32Len || digits[0] > '7' {
		return uuid.UUID{}, badID(prefix, s)
	}
	for i := range base32Len {
		digit := strings.IndexByte(base32Digits, digits[i])
		if digit < 0 {
			return uuid.UUID{}, badID(prefix, s)
		}
		for k := range 5 {
			if bit := 5*i - 2 + k; bit >= 0 {
				id[bit/8] |= byte(digit>>(4-k)&1) << (7 - bit%8)
			}
		}
	}
	return id, nil
}

func badID(prefix, s string) error {
	return &Error{
		Kind:    ErrInvalid,
		Message: fmt.Sprintf("%.80q is not the id of %s", s, kinds[prefix]),
		Hint:    fmt.Sprintf("Ids look like %s or are plain UUIDs.", format(prefix, uuid.UUID{6: 0x70, 8: 0x80})),
		Index:   -1,
	}
}

var kinds = map[string]string{
	accountPrefix: "an account", transferPrefix: "a transfer", journalPrefix: "a journal entry", holdPrefix: "a hold",
}
