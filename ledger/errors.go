package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/shopspring/decimal"
)

// What can be refused. Every refusal is an [*Error] that matches one of these; the database raises the SQLSTATE named
// beside it, so that users of other languages tell them apart as well.
var (
	// ErrAccountNotFound: no such account (LG001).
	ErrAccountNotFound = errors.New("account not found")
	// ErrAssetMismatch: the accounts of a transfer are kept in different assets (LG002).
	ErrAssetMismatch = errors.New("assets differ")
	// ErrLimit: a balance would pass the account's minimum or maximum (LG003).
	ErrLimit = errors.New("balance limit")
	// ErrAccountClosed: the account is closed (LG004).
	ErrAccountClosed = errors.New("account closed")
	// ErrIDReused: the id was used before with other content (LG005).
	ErrIDReused = errors.New("id reused")
	// ErrAmount: the amount is not positive, not finite, too large, or has too many decimals (LG006).
	ErrAmount = errors.New("invalid amount")
	// ErrSameAccount: an account cannot pay itself (LG007).
	ErrSameAccount = errors.New("same account")
	// ErrPeriodClosed: the event time lies in a closed period (LG008).
	ErrPeriodClosed = errors.New("period closed")
	// ErrVersion: an account is no longer at the version that the caller expects (LG009).
	ErrVersion = errors.New("account moved on")
	// ErrHoldNotFound: no such hold (LG010).
	ErrHoldNotFound = errors.New("hold not found")
	// ErrHoldSettled: the hold was posted or voided before (LG011).
	ErrHoldSettled = errors.New("hold already settled")
	// ErrHoldExpired: the hold can no longer be posted (LG012).
	ErrHoldExpired = errors.New("hold expired")
	// ErrReversed: the transfer or journal entry was reversed before (LG013).
	ErrReversed = errors.New("already reversed")
	// ErrUnbalanced: the postings of a journal entry don't sum to zero in each asset (LG014).
	ErrUnbalanced = errors.New("journal entry does not balance")
	// ErrImmutable: UPDATE, DELETE or TRUNCATE on the books (LG015).
	ErrImmutable = errors.New("the books are append-only")
	// ErrInvalid: a name, code, id, text or set of arguments is not usable (LG016).
	ErrInvalid = errors.New("invalid argument")
	// ErrAssetNotFound: no such asset (LG017).
	ErrAssetNotFound = errors.New("asset not found")
	// ErrAssertion: a balance assertion failed (LG018).
	ErrAssertion = errors.New("balance assertion failed")
	// ErrNotFound: no such transfer or journal entry, or no such version of an account (LG019).
	ErrNotFound = errors.New("not found")
	// ErrOpenHolds: an account with open holds can't be closed (LG020).
	ErrOpenHolds = errors.New("account has open holds")
	// ErrTaken: a code is in use, or an asset has other decimals (LG021).
	ErrTaken = errors.New("already in use")
	// ErrPosition: a reading position is malformed, of another database, or later than what the transaction sees; or the books have not
	// been adopted after a restore (LG022).
	ErrPosition = errors.New("invalid reading position")
)

var kindOf = map[string]error{
	"LG001": ErrAccountNotFound, "LG002": ErrAssetMismatch, "LG003": ErrLimit, "LG004": ErrAccountClosed, "LG005": ErrIDReused,
	"LG006": ErrAmount, "LG007": ErrSameAccount, "LG008": ErrPeriodClosed, "LG009": ErrVersion, "LG010": ErrHoldNotFound,
	"LG011": ErrHoldSettled, "LG012": ErrHoldExpired, "LG013": ErrReversed, "LG014": ErrUnbalanced, "LG015": ErrImmutable,
	"LG016": ErrInvalid, "LG017": ErrAssetNotFound, "LG018": ErrAssertion, "LG019": ErrNotFound, "LG020": ErrOpenHolds,
	"LG021": ErrTaken, "LG022": ErrPosition,
}

// Error is a refusal: nothing was booked. Fields that say nothing about this refusal are zero.
type Error struct {
	Kind    error  // what was refused: one of the Err variables of this package
	Message string // in words, with the account, amount and limit
	Hint    string // the way out

	Index        int // place in the batch, from 0; -1 outside batches
	Account      AccountID
	From, To     AccountID
	ID           uuid.UUID           // the transfer, journal entry or hold
	Amount       decimal.NullDecimal // what was asked for
	Balance      decimal.NullDecimal // posted balance of Account
	Limit        decimal.NullDecimal // the limit of Account that would be passed
	Held         decimal.NullDecimal // what open holds keep on Account
	Version      int64               // version of Account
	Expected     int64               // version that was expected
	ClosedBefore time.Time           // end of the closed period

	cause error
}

// Error returns the message and the way out.
func (e *Error) Error() string {
	if e.Hint == "" {
		return "ledger: " + e.Message
	}
	return "ledger: " + e.Message + ". " + e.Hint
}

// Unwrap returns Kind, and the database's error where there is one.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.cause}
}

// refusal is how the database describes one: in an error's DETAIL, or in the results of a partial batch.
type refusal struct {
	Code    string        `json:"code"`
	Message string        `json:"message"`
	Hint    string        `json:"hint"`
	Detail  refusalDetail `json:"detail"`
}

type refusalDetail struct {
	Position     int                 `json:"position"`
	Account      AccountID           `json:"account"`
	From         AccountID           `json:"from"`
	To           AccountID           `json:"to"`
	ID           uuid.UUID           `json:"id"`
	Amount       decimal.NullDecimal `json:"amount"`
	Balance      decimal.NullDecimal `json:"balance"`
	Limit        decimal.NullDecimal `json:"limit"`
	Held         decimal.NullDecimal `json:"held"`
	Version      int64               `json:"version"`
	Expected     json.Number         `json:"expected"`
	ClosedBefore time.Time           `json:"closed_before"`
}

func (r refusal) err(cause error) *Error {
	d := r.Detail
	expected, _ := d.Expected.Int64() // an expected balance is in the message
	return &Error{
		Kind: kindOf[r.Code], Message: r.Message, Hint: r.Hint, cause: cause,
		Index: d.Position - 1, Account: d.Account, From: d.From, To: d.To, ID: d.ID, Amount: d.Amount, Balance: d.Balance, Limit: d.Limit,
		Held: d.Held, Version: d.Version, Expected: expected, ClosedBefore: d.ClosedBefore,
	}
}

// idKeys are the unique keys at which two calls of different kinds (a single transfer and a batch, say) can meet although both looked
// before they inserted.
var idKeys = map[string]bool{"transfer_pkey": true, "journal_pkey": true, "hold_pkey": true, "hold_transfer_key": true}

// retryTaken makes such a meeting the serialization failure that it is: the transaction repeated finds what the other one did.
func retryTaken(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "23505" && idKeys[pgErr.ConstraintName] {
		return errors.Join(&pgconn.PgError{Code: "40001", Message: "another session used the id at the same moment: repeat the transaction"}, err)
	}
	return err
}

// SQLSTATEs of values that PostgreSQL itself refuses: NUL characters, malformed JSON, numbers out of range.
var unusable = map[string]bool{"22021": true, "22P05": true, "22P02": true, "22023": true, "22003": true, "22008": true}

// refused turns a database error into *Error where it is a refusal.
func refused(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	if kindOf[pgErr.Code] != nil {
		r := refusal{Code: pgErr.Code, Message: pgErr.Message, Hint: pgErr.Hint}
		if pgErr.Detail != "" {
			if bad := json.Unmarshal([]byte(pgErr.Detail), &r.Detail); bad != nil {
				return fmt.Errorf("reading the details %q of a refusal: %w", pgErr.Detail, errors.Join(bad, err))
			}
		}
		return r.err(err)
	}
	if pgErr.Code == "23505" && pgErr.ConstraintName == "account_code_key" {
		return &Error{Kind: ErrTaken, Message: "another session took the code at the same moment: " + pgErr.Detail, Hint: "Choose another.", Index: -1, cause: err}
	}
	if unusable[pgErr.Code] {
		return &Error{Kind: ErrInvalid, Message: pgErr.Message, Hint: pgErr.Detail, Index: -1, cause: err}
	}
	return err
}
