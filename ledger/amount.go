package ledger

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"
)

// maxDigits is one more than the database books: it has the last word, and names the account. Beyond, a number such as 1e999999999
// would already fill the client's memory on its way.
const maxDigits = 61

// toNumeric is how amounts travel: exact, and known to pgx in every query mode.
func toNumeric(d decimal.Decimal) (pgtype.Numeric, error) {
	if int64(d.NumDigits())+int64(d.Exponent()) > maxDigits || d.Exponent() < -1000 {
		return pgtype.Numeric{}, &Error{Kind: ErrAmount, Index: -1,
			Message: fmt.Sprintf("amount with %d digits and exponent %d is not a number below 10^60 with at most 1000 decimals", d.NumDigits(), d.Exponent())}
	}
	return pgtype.Numeric{Int: d.Coefficient(), Exp: d.Exponent(), Valid: true}, nil
}

func fromNumeric(n pgtype.Numeric) decimal.Decimal {
	if !n.Valid || n.NaN || n.InfinityModifier != pgtype.Finite {
		return decimal.Decimal{}
	}
	return decimal.NewFromBigInt(n.Int, n.Exp)
}

// toNull is for limits: nil is no limit.
func toNull(d decimal.NullDecimal) (pgtype.Numeric, error) {
	if !d.Valid {
		return pgtype.Numeric{}, nil
	}
	return toNumeric(d.Decimal)
}

func fromNull(n pgtype.Numeric) decimal.NullDecimal {
	return decimal.NullDecimal{Decimal: fromNumeric(n), Valid: n.Valid && n.InfinityModifier == pgtype.Finite}
}

// toTime leaves the zero time out.
func toTime(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// toJSON leaves empty metadata out.
func toJSON(m json.RawMessage) (*string, error) {
	if len(m) == 0 {
		return nil, nil
	}
	if !json.Valid(m) {
		return nil, &Error{Kind: ErrInvalid, Index: -1, Message: fmt.Sprintf("metadata %.80q is not JSON", m)}
	}
	s := string(m)
	return &s, nil
}
