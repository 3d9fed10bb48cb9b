package gnomon_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
)

// TestBranchLife: a branch is made, found, listed, renamed, described, protected, reset and dropped.
func TestBranchLife(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders values (1, 'ann', 10, 'x'), (2, 'bob', 20, null)")
	later := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "price check", gnomon.BranchOptions{Logged: true, Note: "try", ExpiresAt: later, RecordReads: true}))
	if _, err := g.CreateBranch(ctx, "price check", gnomon.BranchOptions{}); refuses(t, err, gnomon.ErrBranchExists).Hint == "" {
		t.Error("there is no way out")
	}
	for _, name := range []string{"", strings.Repeat("x", 201)} {
		_, err := g.CreateBranch(ctx, name, gnomon.BranchOptions{})
		refuses(t, err, gnomon.ErrInvalid)
	}
	_, err := g.CreateBranch(ctx, "of nothing", gnomon.BranchOptions{Of: "nothing"})
	refuses(t, err, gnomon.ErrUnknownBranch)
	_, err = g.CreateBranch(ctx, "of a tag", gnomon.BranchOptions{From: gnomon.AtTag("nothing")})
	refuses(t, err, gnomon.ErrUnknownTag)
	_, err = g.Branch(ctx, "nothing")
	refuses(t, err, gnomon.ErrUnknownBranch)
	child := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "child", gnomon.BranchOptions{Of: "price check"}))

	list := must[[]gnomon.BranchInfo](t)(g.Branches(ctx))
	if len(list) != 2 || list[0].Name != "price check" || !list[0].Logged || list[0].Note != "try" || !list[0].ExpiresAt.Equal(later) || !list[0].Reads || list[0].Owner != "postgres" || list[0].PinnedV == 0 ||
		list[1].Parent != "price check" || list[1].Logged || !list[1].ExpiresAt.IsZero() || list[1].Base != list[0].Base {
		t.Errorf("branches are %+v", list)
	}

	ok(t, b.Rename(ctx, "checked"))
	refuses(t, b.Rename(ctx, "child"), gnomon.ErrBranchExists)
	refuses(t, b.Rename(ctx, ""), gnomon.ErrInvalid)
	ok(t, b.Describe(ctx, "tried"))
	ok(t, b.Expire(ctx, time.Time{}))
	ok(t, b.Protect(ctx, true))
	refuses(t, b.Drop(ctx), gnomon.ErrProtected)
	refuses(t, b.Reset(ctx, ""), gnomon.ErrProtected)
	info := must[gnomon.BranchInfo](t)(must[*gnomon.Branch](t)(g.Branch(ctx, "checked")).Info(ctx))
	if info.ID != list[0].ID || info.Note != "tried" || !info.Protected || !info.ExpiresAt.IsZero() || b.Name() != "checked" {
		t.Errorf("it is %+v", info)
	}
	ok(t, b.Protect(ctx, false))
	run(t, pool, "insert into shop.orders values (3, 'cid', 30, null)")
	ok(t, b.Reset(ctx, gnomon.Present))
	if now := must[gnomon.BranchInfo](t)(b.Info(ctx)); now.Base == info.Base || now.RefreshedAt.IsZero() {
		t.Errorf("after a reset it is %+v", now)
	}
	ok(t, b.Drop(ctx))
	refuses(t, b.Drop(ctx), gnomon.ErrUnknownBranch)
	refuses(t, b.Describe(ctx, "gone"), gnomon.ErrUnknownBranch)
	refuses(t, b.Rename(ctx, "gone"), gnomon.ErrUnknownBranch)
	if info := must[gnomon.BranchInfo](t)(child.Info(ctx)); info.Parent != "" {
		t.Errorf("the child has the parent %q", info.Parent)
	}
	if pins := column[int](t, pool, "select count(*)::int from annals.pin where owner = 'gnomon branch'")[0]; pins != 1 {
		t.Errorf("%d pins", pins)
	}
}

// TestExpiredBranches are dropped by maintenance, and with them what they keep, but for those that are protected or being written.
func TestExpiredBranches(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branchOfO(t)
	run(t, b, "update o set n = 5")
	past := time.Now().Add(-time.Second)
	ok(t, b.Expire(ctx, past))
	must[*gnomon.Branch](t)(g.CreateBranch(ctx, "kept", gnomon.BranchOptions{ExpiresAt: time.Now().Add(time.Hour)}))
	protected := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "protected", gnomon.BranchOptions{ExpiresAt: past}))
	ok(t, protected.Protect(ctx, true))
	written := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "written", gnomon.BranchOptions{ExpiresAt: past}))
	tx := must[pgx.Tx](t)(written.Begin(ctx))
	defer tx.Rollback(context.WithoutCancel(ctx))
	run(t, tx, "delete from o")
	names := func() (list []string) {
		for _, b := range must[[]gnomon.BranchInfo](t)(g.Branches(ctx)) {
			list = append(list, b.Name)
		}
		return list
	}
	var dropped []string
	ok(t, g.Maintain(ctx, func(s gnomon.MaintainStep) {
		if s.Step == "branches" {
			dropped = append(dropped, string(s.Detail))
		}
	}))
	if got := names(); fmt.Sprint(got) != "[kept protected written]" || fmt.Sprint(dropped) != `[{"dropped": 1}]` {
		t.Errorf("left are %v, dropped %v", got, dropped)
	}
	ok(t, tx.Commit(ctx))
	ok(t, g.Maintain(ctx, nil))
	if got := names(); fmt.Sprint(got) != "[kept protected]" {
		t.Errorf("left are %v", got)
	}
	if got := text(t, pool, "select (select count(*) from annals.pin where owner = 'gnomon branch'), (select count(*) from gnomon.o1)"); got != "(2,0)" {
		t.Errorf("pins and rows: %s", got)
	}
}
