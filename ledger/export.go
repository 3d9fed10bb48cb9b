package ledger

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/pgtx"
)

// ExportFormat is a language of plain text accounting.
type ExportFormat string

const (
	HLedger   ExportFormat = "hledger"   // https://hledger.org
	Beancount ExportFormat = "beancount" // https://beancount.github.io
)

// ExportOptions says what is exported and how; its zero value is everything, for hledger, in UTC.
type ExportOptions struct {
	Format   ExportFormat   // empty: HLedger
	From, To time.Time      // booked at From or later, and before To; zero: unbounded
	TimeZone *time.Location // in which dates and times are written; must have a name that others know; nil: UTC
}

// Export writes the books as text, oldest first: assets, accounts, opening balances if From is set, and every transfer and journal entry.
// Only assets and accounts are kept in memory.
//
// Dates are those of booking. For hledger an event time becomes the secondary date (--date2), and every posting asserts the running balance
// that the books have for it, so "hledger check --strict" checks the books again. Beancount gets the event time as metadata, and a
// balance directive for each account on the day after the last. Times, and metadata, become tags (hledger) or metadata (beancount): top-level
// keys that can be a key there, and the rest as JSON under "metadata".
//
// Account codes become account names. What the format can't have in a name is replaced, and where two would then be the same, the
// account that was opened later has its id appended. An account without a code is named by its id. Beancount's five roots are found by the
// first level of the code (assets, liabilities, equity, income or revenue, expenses), else the normal side decides: Assets or Liabilities.
//
// It reads one snapshot. In a transaction of the caller's under READ COMMITTED there are several, and it fails if an account is opened between
// them: use REPEATABLE READ. [ErrInvalid]: unknown format, or a time zone without a name, such as [time.Local].
func (l *Ledger) Export(ctx context.Context, w io.Writer, o ExportOptions) error {
	if o.TimeZone == nil {
		o.TimeZone = time.UTC
	}
	if zone := o.TimeZone.String(); zone == "" || zone == "Local" {
		return &Error{Kind: ErrInvalid, Index: -1, Message: fmt.Sprintf("time zone %q means nothing to a reader of the export", zone),
			Hint: "Use time.UTC or one of time.LoadLocation."}
	}
	out := bufio.NewWriter(w)
	var format exportFormat
	switch o.Format {
	case HLedger, "":
		format = &hledgerFormat{w: out, zone: o.TimeZone}
	case Beancount:
		format = &beancountFormat{w: out, zone: o.TimeZone}
	default:
		return &Error{Kind: ErrInvalid, Index: -1, Message: fmt.Sprintf("export format %q is unknown", o.Format), Hint: "Use HLedger or Beancount."}
	}
	export := func(tx pgx.Tx) error {
		if err := writeBooks(ctx, tx, format, o); err != nil {
			return err
		}
		return out.Flush()
	}
	return refused(pgtx.Run(ctx, l.db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, export))
}

// exportFormat writes one format. Its writer remembers the first error, which each method returns.
type exportFormat interface {
	begin(o ExportOptions) error
	asset(a *exportAsset) error
	account(a *exportAccount) error
	opening(at time.Time, balances []exportLeg) error // of one asset
	booking(b *booking) error
	end() error
}

type exportAsset struct {
	no       int
	code     string
	decimals int32
	symbol   string // as the format writes it; set by the format
}

func (a *exportAsset) format(d decimal.Decimal) string { return d.StringFixed(a.decimals) }

type exportAccount struct {
	id         AccountID
	code       string // empty: none
	title      string
	asset      *exportAsset
	normalSide Side
	openedAt   time.Time
	name       string // as the format writes it; set by the format
}

// booking is a transfer or journal entry.
type booking struct {
	createdAt   time.Time
	eventAt     time.Time // zero: none
	kind        string
	source      uuid.UUID
	description string
	metadata    json.RawMessage
	legs        []exportLeg
}

type exportLeg struct {
	account *exportAccount
	amount  decimal.Decimal
	balance decimal.Decimal // of the account after it
}

func (b *booking) id() string {
	if b.kind == "journal" {
		return JournalID(b.source).String()
	}
	return TransferID(b.source).String()
}

func writeBooks(ctx context.Context, tx pgx.Tx, format exportFormat, o ExportOptions) error {
	if err := format.begin(o); err != nil {
		return err
	}
	assets := map[string]*exportAsset{}
	err := eachRow(ctx, tx, func(row pgx.Rows) error {
		a := new(exportAsset)
		if err := row.Scan(&a.no, &a.code, &a.decimals); err != nil {
			return err
		}
		assets[a.code] = a
		return format.asset(a)
	}, "select no, code, decimals from ledger.asset order by no")
	if err != nil {
		return err
	}
	accounts := map[AccountID]*exportAccount{}
	err = eachRow(ctx, tx, func(row pgx.Rows) error {
		a := new(exportAccount)
		var asset, side string
		if err := row.Scan(&a.id, &a.code, &a.title, &asset, &side, &a.openedAt); err != nil {
			return err
		}
		a.asset, a.normalSide = assets[asset], Side(side)
		if a.asset == nil {
			return openedMeanwhile(a.id)
		}
		accounts[a.id] = a
		return format.account(a)
	}, `select a.id, coalesce(a.code, ''), a.name, s.code, a.normal_side, a.created_at
		from ledger.account a join ledger.asset s on s.no = a.asset_no order by a.no`)
	if err != nil {
		return err
	}
	if !o.From.IsZero() {
		if err := writeOpening(ctx, tx, format, accounts, o.From); err != nil {
			return err
		}
	}
	if err := writeBookings(ctx, tx, format, accounts, o); err != nil {
		return err
	}
	return format.end()
}

// writeOpening writes a transaction for each asset that brings all accounts to where they stood. Their sum is zero, as that of
// everything booked before.
func writeOpening(ctx context.Context, tx pgx.Tx, format exportFormat, accounts map[AccountID]*exportAccount, from time.Time) error {
	var balances []exportLeg
	write := func() error {
		if len(balances) == 0 {
			return nil
		}
		err := format.opening(from, balances)
		balances = balances[:0]
		return err
	}
	err := eachRow(ctx, tx, func(row pgx.Rows) error {
		var id AccountID
		var balance pgtype.Numeric
		if err := row.Scan(&id, &balance); err != nil {
			return err
		}
		a := accounts[id]
		if a == nil {
			return openedMeanwhile(id)
		}
		if len(balances) > 0 && balances[0].account.asset != a.asset {
			if err := write(); err != nil {
				return err
			}
		}
		balances = append(balances, exportLeg{account: a, amount: fromNumeric(balance), balance: fromNumeric(balance)})
		return nil
	}, `select a.id, b.balance from ledger.balances_at($1::timestamptz - interval '1 microsecond', false) b join ledger.account a on a.no = b.account_no
		where b.balance <> 0 order by a.asset_no, a.no`, toTime(from))
	if err != nil {
		return err
	}
	return write()
}

func writeBookings(ctx context.Context, tx pgx.Tx, format exportFormat, accounts map[AccountID]*exportAccount, o ExportOptions) error {
	var current *booking
	write := func() error {
		if current == nil {
			return nil
		}
		return format.booking(current)
	}
	err := eachRow(ctx, tx, func(row pgx.Rows) error {
		var b booking
		var leg exportLeg
		var account AccountID
		var event pgtype.Timestamptz
		var amount, balance pgtype.Numeric
		if err := row.Scan(&b.createdAt, &event, &b.kind, &b.source, &account, &amount, &balance, &b.description, (*[]byte)(&b.metadata)); err != nil {
			return err
		}
		b.eventAt, leg.account, leg.amount, leg.balance = event.Time, accounts[account], fromNumeric(amount), fromNumeric(balance)
		if leg.account == nil {
			return openedMeanwhile(account)
		}
		if current == nil || current.kind != b.kind || current.source != b.source {
			if err := write(); err != nil {
				return err
			}
			current = &b
		}
		current.legs = append(current.legs, leg)
		return nil
	}, `select created_at, event_at, kind, source_id, account_id, amount, balance, coalesce(description, ''), metadata
		from ledger.general_journal($1, $2)`, since(o.From), until(o.To))
	if err != nil {
		return err
	}
	return write()
}

func openedMeanwhile(id AccountID) error {
	return fmt.Errorf("account %s was opened while the export ran: run it in a REPEATABLE READ transaction, or outside any", id)
}

// eachRow hands the rows of a statement on as they arrive.
func eachRow(ctx context.Context, tx pgx.Tx, read func(pgx.Rows) error, sql string, args ...any) error {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
