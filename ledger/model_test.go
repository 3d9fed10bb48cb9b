package ledger_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/ledger"
)

// mirror is a ledger in memory with the same promises and none of the machinery: every operation reads top to bottom what is allowed,
// in the order in which refusals are looked for. An operation works on a clone, which is kept only if it succeeds.
type mirror struct {
	accounts     map[ledger.AccountID]mirrorAccount
	transfers    map[ledger.TransferID]mirrorTransfer
	journals     map[ledger.JournalID]mirrorJournal
	holds        map[ledger.HoldID]mirrorHold
	closedBefore time.Time
}

type mirrorAccount struct {
	asset    string
	decimals int32
	min, max decimal.NullDecimal
	closed   bool
	balance  decimal.Decimal
	entries  []ledger.Entry
}

// mirrorTransfer is a request and its first result.
type mirrorTransfer struct {
	ledger.TransferParams
	upTo       decimal.NullDecimal // what a balancing transfer was asked for
	posted     ledger.Posted
	reverses   ledger.TransferID
	reversedBy ledger.TransferID
	hold       ledger.HoldID
}

type mirrorJournal struct {
	ledger.JournalParams
	posted     ledger.JournalPosted
	reverses   ledger.JournalID
	reversedBy ledger.JournalID
}

type mirrorHold struct {
	ledger.HoldParams
	state    ledger.HoldState
	posted   decimal.NullDecimal
	transfer ledger.TransferID
}

func newMirror() *mirror {
	return &mirror{map[ledger.AccountID]mirrorAccount{}, map[ledger.TransferID]mirrorTransfer{}, map[ledger.JournalID]mirrorJournal{},
		map[ledger.HoldID]mirrorHold{}, time.Time{}}
}

func (m *mirror) clone() *mirror {
	return &mirror{maps.Clone(m.accounts), maps.Clone(m.transfers), maps.Clone(m.journals), maps.Clone(m.holds), m.closedBefore}
}

func (m *mirror) held(id ledger.AccountID) (out, in decimal.Decimal) {
	for _, h := range m.holds {
		if h.state == ledger.HoldOpen && h.From == id {
			out = out.Add(h.Amount)
		}
		if h.state == ledger.HoldOpen && h.To == id {
			in = in.Add(h.Amount)
		}
	}
	return out, in
}

// within says whether a change of an account that stands at before respects its limits.
func (m *mirror) within(id ledger.AccountID, before, change decimal.Decimal) bool {
	a := m.accounts[id]
	out, in := m.held(id)
	switch after := before.Add(change); change.Sign() {
	case -1:
		return !a.min.Valid || !after.Sub(out).LessThan(a.min.Decimal)
	case 1:
		return !a.max.Valid || !after.Add(in).GreaterThan(a.max.Decimal)
	}
	return true
}

func (m *mirror) periodClosed(event time.Time) bool {
	return !event.IsZero() && event.Before(m.closedBefore)
}

func (m *mirror) known(ids ...ledger.AccountID) bool {
	return !slices.ContainsFunc(ids, func(id ledger.AccountID) bool { _, found := m.accounts[id]; return !found })
}

var tooMuch = decimal.New(1, 60)

func possibleAmount(d decimal.Decimal) bool { return d.IsPositive() && d.LessThan(tooMuch) }

func tooFine(d decimal.Decimal, decimals int32) bool { return !d.Equal(d.Truncate(decimals)) }

func (m *mirror) refusal(p ledger.TransferParams) error {
	from, to := m.accounts[p.From], m.accounts[p.To]
	switch {
	case !possibleAmount(p.Amount):
		return ledger.ErrAmount
	case !m.known(p.From, p.To):
		return ledger.ErrAccountNotFound
	case p.From == p.To:
		return ledger.ErrSameAccount
	case from.asset != to.asset:
		return ledger.ErrAssetMismatch
	case tooFine(p.Amount, from.decimals):
		return ledger.ErrAmount
	case from.closed || to.closed:
		return ledger.ErrAccountClosed
	case m.periodClosed(p.EventAt):
		return ledger.ErrPeriodClosed
	case !m.within(p.From, from.balance, p.Amount.Neg()) || !m.within(p.To, to.balance, p.Amount):
		return ledger.ErrLimit
	}
	return nil
}

// enter adds an entry to an account and returns where that leaves it.
func (m *mirror) enter(id ledger.AccountID, amount decimal.Decimal, e ledger.Entry) (version int64, balance decimal.Decimal) {
	a := m.accounts[id]
	e.Account, e.Amount, e.Previous = id, amount, a.balance
	a.balance = a.balance.Add(amount)
	e.Version, e.Balance = int64(len(a.entries)+1), a.balance
	a.entries = append(slices.Clip(a.entries), e)
	m.accounts[id] = a
	return e.Version, e.Balance
}

func (m *mirror) book(p ledger.TransferParams) ledger.Posted {
	e := ledger.Entry{Kind: "transfer", Source: [16]byte(p.ID), EventAt: p.EventAt, Metadata: p.Metadata}
	done := ledger.Posted{ID: p.ID}
	e.Leg, e.Counterparty = 1, p.To
	done.FromVersion, done.FromBalance = m.enter(p.From, p.Amount.Neg(), e)
	e.Leg, e.Counterparty = 2, p.From
	done.ToVersion, done.ToBalance = m.enter(p.To, p.Amount, e)
	m.transfers[p.ID] = mirrorTransfer{TransferParams: p, posted: done}
	return done
}

// again returns the first result of a transfer, if its content is the same.
func (m *mirror) again(p ledger.TransferParams) (ledger.Posted, error) {
	t := m.transfers[p.ID]
	if t.From != p.From || t.To != p.To || !t.Amount.Equal(p.Amount) || !t.EventAt.Equal(p.EventAt) || !sameJSON(t.Metadata, p.Metadata) {
		return ledger.Posted{}, ledger.ErrIDReused
	}
	t.posted.Replayed = true
	return t.posted, nil
}

func (m *mirror) transfer(p ledger.TransferParams) (ledger.Posted, error) {
	if _, before := m.transfers[p.ID]; before && possibleAmount(p.Amount) && p.From != p.To {
		return m.again(p)
	}
	if err := m.refusal(p); err != nil {
		return ledger.Posted{}, err
	}
	return m.book(p), nil
}

func (m *mirror) transferIf(p ledger.TransferParams, fromVersion, toVersion int64) (ledger.Posted, error) {
	if !m.known(p.From, p.To) {
		return ledger.Posted{}, ledger.ErrAccountNotFound
	}
	at := func(id ledger.AccountID, version int64) bool {
		return version < 0 || version == int64(len(m.accounts[id].entries))
	}
	if _, before := m.transfers[p.ID]; !before && !(at(p.From, fromVersion) && at(p.To, toVersion)) {
		return ledger.Posted{}, ledger.ErrVersion
	}
	return m.transfer(p)
}

func (m *mirror) transferAvailable(p ledger.TransferParams) (ledger.Posted, error) {
	if !m.known(p.From, p.To) {
		return ledger.Posted{}, ledger.ErrAccountNotFound
	}
	upTo := p.Amount
	if t, before := m.transfers[p.ID]; before {
		if !t.upTo.Valid || !t.upTo.Decimal.Equal(upTo) {
			return ledger.Posted{}, ledger.ErrIDReused
		}
		p.Amount = t.Amount
		return m.again(p)
	}
	from, to := m.accounts[p.From], m.accounts[p.To]
	if out, _ := m.held(p.From); from.min.Valid {
		p.Amount = decimal.Min(p.Amount, from.balance.Sub(out).Sub(from.min.Decimal))
	}
	if _, in := m.held(p.To); to.max.Valid {
		p.Amount = decimal.Min(p.Amount, to.max.Decimal.Sub(to.balance).Sub(in))
	}
	if !p.Amount.IsPositive() || !possibleAmount(upTo) || tooFine(upTo, from.decimals) {
		p.Amount = upTo // for the reason of the refusal
	}
	done, err := m.transfer(p)
	if err == nil {
		t := m.transfers[p.ID]
		t.upTo = decimal.NewNullDecimal(upTo)
		m.transfers[p.ID] = t
	}
	return done, err
}

// transferEach books what can be booked; err is about the batch as a whole.
func (m *mirror) transferEach(batch []ledger.TransferParams) (posted []ledger.Posted, refused []error, err error) {
	posted, refused = make([]ledger.Posted, len(batch)), make([]error, len(batch))
	before := maps.Clone(m.transfers)
	for i, p := range batch {
		if _, found := before[p.ID]; found {
			posted[i], refused[i] = m.again(p)
		} else if refused[i] = m.refusal(p); refused[i] == nil {
			if _, twice := m.transfers[p.ID]; twice {
				err = ledger.ErrInvalid
			}
			posted[i] = m.book(p)
		}
	}
	return posted, refused, err
}

func (m *mirror) hold(p ledger.HoldParams) (ledger.Held, error) {
	if h, before := m.holds[p.ID]; before {
		if h.From != p.From || h.To != p.To || !h.Amount.Equal(p.Amount) || !h.ExpiresAt.Equal(p.ExpiresAt) || !h.EventAt.Equal(p.EventAt) ||
			!sameJSON(h.Metadata, p.Metadata) {
			return ledger.Held{}, ledger.ErrIDReused
		}
		return ledger.Held{ID: p.ID, Replayed: true, State: h.state, Amount: h.Amount}, nil
	}
	if !m.known(p.From, p.To) {
		return ledger.Held{}, ledger.ErrAccountNotFound
	}
	if err := m.refusal(ledger.TransferParams{From: p.From, To: p.To, Amount: p.Amount, EventAt: p.EventAt}); err != nil {
		return ledger.Held{}, err
	}
	m.holds[p.ID] = mirrorHold{HoldParams: p, state: ledger.HoldOpen}
	return ledger.Held{ID: p.ID, State: ledger.HoldOpen, Amount: p.Amount}, nil
}

// postedAs reports whether a hold was posted with this content, where what is left out is the hold's.
func (m *mirror) postedAs(h mirrorHold, p ledger.PostParams) bool {
	t := m.transfers[h.transfer]
	eventAt, metadata := h.EventAt, h.Metadata
	if !p.EventAt.IsZero() {
		eventAt = p.EventAt
	}
	if len(p.Metadata) > 0 {
		metadata = p.Metadata
	}
	return (p.TransferID.IsZero() || p.TransferID == t.ID) && eventAt.Equal(t.EventAt) && sameJSON(metadata, t.Metadata)
}

func (m *mirror) postHold(id ledger.HoldID, p ledger.PostParams) (ledger.Posted, error) {
	h, found := m.holds[id]
	amount := h.Amount
	if p.Amount.Valid {
		amount = p.Amount.Decimal
	}
	switch {
	case !found:
		return ledger.Posted{}, ledger.ErrHoldNotFound
	case h.state == ledger.HoldPosted && h.posted.Decimal.Equal(amount) && m.postedAs(h, p):
		done := m.transfers[h.transfer].posted
		done.Replayed = true
		return done, nil
	case h.state == ledger.HoldExpired:
		return ledger.Posted{}, ledger.ErrHoldExpired
	case h.state != ledger.HoldOpen:
		return ledger.Posted{}, ledger.ErrHoldSettled
	case amount.GreaterThan(h.Amount):
		return ledger.Posted{}, ledger.ErrAmount
	}
	if p.EventAt.IsZero() {
		p.EventAt = h.EventAt
	}
	if len(p.Metadata) == 0 {
		p.Metadata = h.Metadata
	}
	h.state, h.posted, h.transfer = ledger.HoldPosted, decimal.NewNullDecimal(amount), p.TransferID
	m.holds[id] = h
	done, err := m.transfer(ledger.TransferParams{ID: p.TransferID, From: h.From, To: h.To, Amount: amount, EventAt: p.EventAt, Metadata: p.Metadata})
	if err == nil && done.Replayed {
		err = ledger.ErrIDReused
	}
	if err == nil {
		t := m.transfers[p.TransferID]
		t.hold = id
		m.transfers[p.TransferID] = t
	}
	return done, err
}

func (m *mirror) voidHold(id ledger.HoldID) (ledger.Held, error) {
	h, found := m.holds[id]
	if !found {
		return ledger.Held{}, ledger.ErrHoldNotFound
	}
	if h.state == ledger.HoldPosted {
		return ledger.Held{}, ledger.ErrHoldSettled
	}
	before := h.state
	if h.state == ledger.HoldOpen {
		h.state = ledger.HoldVoided
		m.holds[id] = h
	}
	return ledger.Held{ID: id, Replayed: h.state == before, State: h.state, Amount: h.Amount}, nil
}

func (m *mirror) reverseTransfer(id ledger.TransferID, p ledger.ReverseTransferParams) (ledger.Posted, error) {
	t, found := m.transfers[id]
	if !found {
		return ledger.Posted{}, ledger.ErrNotFound
	}
	if !t.reversedBy.IsZero() && t.reversedBy != p.ID {
		return ledger.Posted{}, ledger.ErrReversed
	}
	done, err := m.transfer(ledger.TransferParams{ID: p.ID, From: t.To, To: t.From, Amount: t.Amount, EventAt: p.EventAt, Metadata: p.Metadata})
	if err != nil || !t.reversedBy.IsZero() {
		return done, err
	}
	if done.Replayed {
		return done, ledger.ErrIDReused
	}
	t.reversedBy = p.ID
	m.transfers[id] = t
	r := m.transfers[p.ID]
	r.reverses = id
	m.transfers[p.ID] = r
	return done, nil
}

func (m *mirror) journalRefusal(p ledger.JournalParams) error {
	if len(p.Postings) < 2 {
		return ledger.ErrInvalid
	}
	sum := map[string]decimal.Decimal{}
	for _, leg := range p.Postings {
		a := m.accounts[leg.Account]
		switch {
		case !possibleAmount(leg.Amount.Abs()) || tooFine(leg.Amount, a.decimals):
			return ledger.ErrAmount
		case a.closed:
			return ledger.ErrAccountClosed
		}
		sum[a.asset] = sum[a.asset].Add(leg.Amount)
	}
	for _, s := range sum {
		if !s.IsZero() {
			return ledger.ErrUnbalanced
		}
	}
	if m.periodClosed(p.EventAt) {
		return ledger.ErrPeriodClosed
	}
	return nil
}

func (m *mirror) postJournal(p ledger.JournalParams) (ledger.JournalPosted, error) {
	if j, before := m.journals[p.ID]; before {
		same := func(x, y ledger.Posting) bool { return x.Account == y.Account && x.Amount.Equal(y.Amount) }
		if !slices.EqualFunc(j.Postings, p.Postings, same) || j.Description != p.Description || !j.EventAt.Equal(p.EventAt) || !sameJSON(j.Metadata, p.Metadata) {
			return ledger.JournalPosted{}, ledger.ErrIDReused
		}
		j.posted.Replayed = true
		return j.posted, nil
	}
	for _, leg := range p.Postings {
		if !m.known(leg.Account) {
			return ledger.JournalPosted{}, ledger.ErrAccountNotFound
		}
	}
	if err := m.journalRefusal(p); err != nil {
		return ledger.JournalPosted{}, err
	}
	done := ledger.JournalPosted{ID: p.ID}
	net := map[ledger.AccountID]decimal.Decimal{}
	for i, leg := range p.Postings {
		version, balance := m.enter(leg.Account, leg.Amount, ledger.Entry{
			Kind: "journal", Source: [16]byte(p.ID), Leg: i + 1, EventAt: p.EventAt, Metadata: p.Metadata, Description: p.Description})
		done.Versions, done.Balances = append(done.Versions, version), append(done.Balances, balance)
		if leg.Balance.Valid && !leg.Balance.Decimal.Equal(balance) {
			return ledger.JournalPosted{}, ledger.ErrAssertion
		}
		net[leg.Account] = net[leg.Account].Add(leg.Amount)
	}
	for id, change := range net {
		if !m.within(id, m.accounts[id].balance.Sub(change), change) {
			return ledger.JournalPosted{}, ledger.ErrLimit
		}
	}
	m.journals[p.ID] = mirrorJournal{JournalParams: p, posted: done}
	return done, nil
}

func (m *mirror) exchange(p ledger.ExchangeParams) (ledger.JournalPosted, error) {
	if !p.FromAmount.IsPositive() || !p.ToAmount.IsPositive() {
		return ledger.JournalPosted{}, ledger.ErrAmount
	}
	return m.postJournal(ledger.JournalParams{ID: p.ID, Description: "exchange", EventAt: p.EventAt, Metadata: p.Metadata, Postings: []ledger.Posting{
		{Account: p.From, Amount: p.FromAmount.Neg()}, {Account: p.FromLiquidity, Amount: p.FromAmount},
		{Account: p.ToLiquidity, Amount: p.ToAmount.Neg()}, {Account: p.To, Amount: p.ToAmount}}})
}

func (m *mirror) reverseJournal(id ledger.JournalID, p ledger.ReverseJournalParams) (ledger.JournalPosted, error) {
	j, found := m.journals[id]
	if !found {
		return ledger.JournalPosted{}, ledger.ErrNotFound
	}
	if !j.reversedBy.IsZero() && j.reversedBy != p.ID {
		return ledger.JournalPosted{}, ledger.ErrReversed
	}
	back := make([]ledger.Posting, len(j.Postings))
	for i, leg := range j.Postings {
		back[i] = ledger.Posting{Account: leg.Account, Amount: leg.Amount.Neg()}
	}
	done, err := m.postJournal(ledger.JournalParams{ID: p.ID, Description: p.Description, EventAt: p.EventAt, Metadata: p.Metadata, Postings: back})
	if err != nil || !j.reversedBy.IsZero() {
		return done, err
	}
	if done.Replayed {
		return done, ledger.ErrIDReused
	}
	j.reversedBy = p.ID
	m.journals[id] = j
	r := m.journals[p.ID]
	r.reverses = id
	m.journals[p.ID] = r
	return done, nil
}

func (m *mirror) closeAccount(id ledger.AccountID) error {
	if !m.known(id) {
		return ledger.ErrAccountNotFound
	}
	if out, in := m.held(id); !out.IsZero() || !in.IsZero() {
		return ledger.ErrOpenHolds
	}
	a := m.accounts[id]
	a.closed = true
	m.accounts[id] = a
	return nil
}

func (m *mirror) reopenAccount(id ledger.AccountID) error {
	if !m.known(id) {
		return ledger.ErrAccountNotFound
	}
	a := m.accounts[id]
	a.closed = false
	m.accounts[id] = a
	return nil
}

func (m *mirror) setLimits(id ledger.AccountID, lowest, highest decimal.NullDecimal) error {
	if !m.known(id) {
		return ledger.ErrAccountNotFound
	}
	a := m.accounts[id]
	if tooFine(lowest.Decimal, a.decimals) || tooFine(highest.Decimal, a.decimals) || lowest.Valid && highest.Valid && lowest.Decimal.GreaterThan(highest.Decimal) {
		return ledger.ErrInvalid
	}
	a.min, a.max = lowest, highest
	m.accounts[id] = a
	return nil
}

func (m *mirror) closePeriod(before time.Time) error {
	if before.Before(m.closedBefore) || before.After(time.Now()) {
		return ledger.ErrInvalid
	}
	m.closedBefore = before
	return nil
}

func (m *mirror) reopenPeriod(before time.Time) error {
	if before.After(m.closedBefore) {
		return ledger.ErrInvalid
	}
	m.closedBefore = before
	return nil
}

// sameJSON compares as the database does, whose JSON has no white space of its own.
func sameJSON(x, y json.RawMessage) bool {
	var a, b bytes.Buffer
	_ = json.Compact(&a, x) // empty is no JSON and compares as empty
	_ = json.Compact(&b, y)
	return bytes.Equal(a.Bytes(), b.Bytes())
}
