package gnomon_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// A modelStatement is SQL, and the changes that it makes of a state.
type modelStatement struct {
	sql     string
	changes func(s modelState) ([]modelChange, error)
}

func literal(v string) string {
	if v == modelNull {
		return "null"
	}
	return "'" + strings.ReplaceAll(v, "'", "''") + "'"
}

func literals(values []string) string {
	var list []string
	for _, v := range values {
		list = append(list, literal(v))
	}
	return strings.Join(list, ", ")
}

// Values of columns, by their names; the first letter of a column says which.
var modelValues = map[byte][]string{
	'i': {"1", "2", "3", "4", "5"},
	'k': {"a", "b", "B", "it's", ""},
	'u': {modelNull, "one", "two", "three", "ÄÖ", "six"},
	'n': {"0", "1", "2", "10"},
	'd': {modelNull, "1", "1.0", "1.00", "-2.5"},
	'w': {modelNull, "", "w", "v", "o'", `"q"`},
	'j': {modelNull, "{}", `{"a": 1}`, `{"a": 2, "b": [1]}`, "null", "[]"},
	'p': {modelNull, "1", "2", "3"},
	'q': {modelNull, "a", "b", "B"},
}

func columnValues(column string) []string { return modelValues[strings.Trim(column, `"`)[0]] }

// A branchWorld is a kind of tables: with a composite key and a unique column, children of it, and one that refers to itself. They stand in a schema
// of their own, and programs use them one after the other.
type branchWorld struct {
	onDelete, onUpdate, up string // of the foreign keys
	made                   bool
}

var branchWorlds = []branchWorld{{"", "", "", false}, {"cascade", "cascade", "cascade", false}, {"set null", "cascade", "no action", false}, {"no action", "no action", "set null", false}, {"cascade", "set null", "cascade", false}}

func (w branchWorld) schema() modelSchema {
	schema := modelSchema{
		{name: "region", columns: []string{"i", "k", "u", "n"}, key: 2, unique: []int{2}},
		{name: `"ta""ble"`, columns: []string{"k", `"w"`, `"p"`, `"q"`, "d"}, key: 1},
		{name: "item", columns: []string{"i", "n", "w2", "j", "p"}, key: 1},
	}
	if w.up != "" {
		schema[1].refs = []modelRef{{[]int{2, 3}, "region", w.onDelete, w.onUpdate}}
		schema[2].refs = []modelRef{{[]int{4}, "item", w.up, "no action"}}
	}
	return schema
}

func (w branchWorld) name() string { return fmt.Sprintf(`"%s, %s, %s"`, w.onDelete, w.onUpdate, w.up) }

func (w branchWorld) setup() string {
	keys := ""
	if w.up != "" {
		keys = fmt.Sprintf(`;
alter table "ta""ble" add foreign key ("p", "q") references region (i, k) on delete %s on update %s;
alter table item add foreign key (p) references item on delete %s`, w.onDelete, w.onUpdate, w.up)
	}
	return fmt.Sprintf(`create schema %[1]s; set search_path = %[1]s;
create table region (i int, k text collate "C", u text unique, n int not null, primary key (k, i));
create table "ta""ble" (k text collate "C" primary key, "w" text, "p" int, "q" text collate "C", d numeric);
create index on "ta""ble" ("p", "q");
create table item (n int not null, i int primary key, j jsonb, w2 text, p int)%[2]s;
select gnomon.track('region'), gnomon.track('"ta""ble"'), gnomon.track('item')`, w.name(), keys)
}

// row draws one.
func (p *branchProgram) row(t *modelTable) (row modelRow) {
	for _, c := range t.columns {
		row = append(row, rapid.SampledFrom(columnValues(c)).Draw(p.r, c))
	}
	return row
}

// where says which row it is.
func (t *modelTable) where(row modelRow) string {
	var list []string
	for i := range t.key {
		list = append(list, fmt.Sprintf("%s = %s", t.columns[i], literal(row[i])))
	}
	return strings.Join(list, " and ")
}

// some draws a row whose key is one that there is, if that can be.
func (p *branchProgram) some(t *modelTable, s modelState) modelRow {
	row := p.row(t)
	if keys := slices.Sorted(maps.Keys(s[t.name])); len(keys) > 0 && rapid.IntRange(0, 9).Draw(p.r, "there") > 0 {
		copy(row, s[t.name][rapid.SampledFrom(keys).Draw(p.r, "key")][:t.key])
	}
	return row
}

// statement draws one.
func (p *branchProgram) statement(s modelState) modelStatement {
	t := rapid.SampledFrom(p.schema).Draw(p.r, "table")
	row := p.row(t)
	column := rapid.IntRange(t.key, len(t.columns)-1).Draw(p.r, "column")
	if rapid.IntRange(0, 9).Draw(p.r, "there") > 0 {
		row = p.some(t, s)
	}
	found := func(s modelState) modelRow { return s[t.name][modelKey(row, t.key)] }
	one := func(change func(old modelRow) modelRow) func(modelState) ([]modelChange, error) {
		return func(s modelState) ([]modelChange, error) {
			old := found(s)
			if old == nil {
				return nil, nil
			}
			return []modelChange{{t.name, old, change(old)}}, nil
		}
	}
	insert := fmt.Sprintf("insert into %s (%s) values (%s)", t.name, strings.Join(t.columns, ", "), literals(row))
	switch rapid.SampledFrom([]string{"insert", "insert", "update", "update", "update", "update all", "key", "delete", "again", "move", "delete some", "exchange"}).Draw(p.r, "statement") {
	case "exchange": // two rows exchange unique values
		t = p.schema[0]
		one, other := p.some(t, s), p.some(t, s)
		a, b := s[t.name][modelKey(one, t.key)], s[t.name][modelKey(other, t.key)]
		if a == nil || b == nil || sameRow(a, b) {
			return modelStatement{"select", func(modelState) ([]modelChange, error) { return nil, nil }}
		}
		u := t.columns[2]
		return modelStatement{fmt.Sprintf("update %[1]s set %[2]s = null where %[3]s; update %[1]s set %[2]s = %[4]s where %[5]s; update %[1]s set %[2]s = %[6]s where %[3]s", t.name, u, t.where(a), literal(a[2]), t.where(b), literal(b[2])),
			func(modelState) ([]modelChange, error) {
				x, y := slices.Clone(a), slices.Clone(b)
				x[2], y[2] = b[2], a[2]
				return []modelChange{{t.name, a, x}, {t.name, b, y}}, nil
			}}
	case "insert":
		row = p.row(t)
		return modelStatement{fmt.Sprintf("insert into %s (%s) values (%s)", t.name, strings.Join(t.columns, ", "), literals(row)),
			func(modelState) ([]modelChange, error) { return []modelChange{{t.name, nil, row}}, nil }}
	case "update":
		return modelStatement{fmt.Sprintf("update %s set %s = %s where %s", t.name, t.columns[column], literal(row[column]), t.where(row)),
			one(func(old modelRow) modelRow {
				next := slices.Clone(old)
				next[column] = row[column]
				return next
			})}
	case "update all": // of a column that is neither unique nor refers to anything
		column = slices.IndexFunc(t.columns, func(c string) bool { return strings.ContainsAny(c[:1], "n") || c == `"w"` })
		return modelStatement{fmt.Sprintf("update %s as \"new\" set %s = %s where %s >= %s", t.name, t.columns[column], literal(row[column]), t.columns[0], literal(row[0])),
			func(s modelState) (list []modelChange, err error) {
				for _, old := range s[t.name] {
					if old[0] >= row[0] {
						next := slices.Clone(old)
						next[column] = row[column]
						list = append(list, modelChange{t.name, old, next})
					}
				}
				return list, nil
			}}
	case "key":
		to := p.row(t)
		var set []string
		for i := range t.key {
			set = append(set, fmt.Sprintf("%s = %s", t.columns[i], literal(to[i])))
		}
		return modelStatement{fmt.Sprintf("update %s set %s where %s", t.name, strings.Join(set, ", "), t.where(row)),
			one(func(old modelRow) modelRow { return append(slices.Clone(to[:t.key]), old[t.key:]...) })}
	case "delete":
		return modelStatement{fmt.Sprintf("delete from %s where %s", t.name, t.where(row)), one(func(modelRow) modelRow { return nil })}
	case "delete some":
		return modelStatement{fmt.Sprintf("delete from %s where %s is not distinct from %s", t.name, t.columns[column], literal(row[column])+map[bool]string{true: "::jsonb"}[t.columns[column] == "j"]),
			func(s modelState) (list []modelChange, err error) {
				for _, old := range s[t.name] {
					same := old[column] == row[column]
					if t.columns[column] == "d" && row[column] != modelNull && old[column] != modelNull { // equal, but written otherwise
						same = strings.TrimRight(old[column], ".0") == strings.TrimRight(row[column], ".0")
					}
					if same {
						list = append(list, modelChange{t.name, old, nil})
					}
				}
				return list, nil
			}}
	case "again": // a row goes and comes back
		return modelStatement{fmt.Sprintf("delete from %s where %s; %s", t.name, t.where(row), insert), nil}.then(p.schema,
			one(func(modelRow) modelRow { return nil }), func(modelState) ([]modelChange, error) { return []modelChange{{t.name, nil, row}}, nil })
	default: // a row takes another's key
		other := p.some(t, s)
		var set []string
		for i := range t.key {
			set = append(set, fmt.Sprintf("%s = %s", t.columns[i], literal(row[i])))
		}
		return modelStatement{fmt.Sprintf("delete from %s where %s; update %s set %s where %s", t.name, t.where(row), t.name, strings.Join(set, ", "), t.where(other)), nil}.then(p.schema,
			one(func(modelRow) modelRow { return nil }), func(s modelState) ([]modelChange, error) {
				old := s[t.name][modelKey(other, t.key)]
				if old == nil {
					return nil, nil
				}
				return []modelChange{{t.name, old, append(slices.Clone(row[:t.key]), old[t.key:]...)}}, nil
			})
	}
}

// then makes a statement of two, the changes of which are applied one after the other.
func (s modelStatement) then(m modelSchema, first, second func(modelState) ([]modelChange, error)) modelStatement {
	s.changes = func(state modelState) ([]modelChange, error) {
		list, err := first(state)
		if err == nil {
			err = m.apply(state, list)
		}
		if err != nil {
			return nil, err
		}
		return second(state)
	}
	return s
}
