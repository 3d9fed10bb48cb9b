package gnomon_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
)

type order struct {
	ID       int
	Customer string
	Total    *float64
	Note     *string
}

func TestThePastIsReadByOrdinarySQL(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	ctx := t.Context()
	run(t, pool, "create table shop.customer (name text primary key, city text)")
	track(t, g, "shop.customer")
	run(t, pool, "alter database "+pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()+" set search_path = shop, public")
	pool.Reset()
	run(t, pool, "insert into customer values ('ada', 'London'), ('tom', 'Leeds')", "insert into orders values (1, 'ada', 10, null), (2, 'ada', 20, 'x'), (3, 'tom', 5, null)")
	then := must[gnomon.Coordinate](t)(g.Now(ctx))
	run(t, pool, "update orders set total = total * 2 where id < 3", "delete from orders where id = 3", "insert into orders values (4, 'tom', 1, null)", "update customer set city = 'Paris'", "update orders set id = 20 where id = 2")
	past := must[*gnomon.Past](t)(g.At(ctx, then.Ref()))
	const report = "select c.city, count(*) as n, sum(o.total) as total from orders o join customer c on c.name = o.customer group by c.city order by c.city"
	if got := text(t, past, report); got != "(Leeds,1,5.00)\n(London,2,30.00)" {
		t.Errorf("the past: %s", got)
	}
	if got := text(t, pool, report); got != "(Paris,3,61.00)" {
		t.Errorf("the present: %s", got)
	}
	for id, want := range map[int]float64{1: 10, 2: 20, 3: 5} {
		o, found, err := gnomon.Get[order](ctx, past, "shop.orders", id)
		if err != nil || !found || *o.Total != want {
			t.Errorf("order %d: %+v, %v, %v", id, o, found, err)
		}
	}
	for _, id := range []int{4, 20} {
		if _, found, err := gnomon.Get[order](ctx, past, "shop.orders", id); found || err != nil {
			t.Errorf("order %d is there: %v", id, err)
		}
	}
	if list := must[[]order](t)(gnomon.List[order](ctx, past, "shop.orders", "where customer = $1 order by id desc", "ada")); len(list) != 2 || list[0].ID != 2 {
		t.Errorf("the list is %+v", list)
	}
}
