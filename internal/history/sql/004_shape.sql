-- What a table is, as far as capture has to know.

create function annals.stored_type(type oid, modifier int) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  t record;
begin
  -- History holds a domain's values, not its constraints: they may change, and checking them would run code of the domain's owner.
  loop
    select typtype, typbasetype, typtypmod into t from pg_type where oid = type;
    exit when t.typtype <> 'd';
    type := t.typbasetype;
    modifier := t.typtypmod;
  end loop;
  return format_type(type, modifier);
end $$;
comment on function annals.stored_type is 'The type, qualified, as which history stores values of a type: domains as what they are based on.';

create function annals.leaves(relation oid) returns table (relid oid, leaf boolean, kind "char")
language sql stable set search_path = pg_catalog, pg_temp as $$
  select c.oid, c.relkind = 'r', c.relkind from pg_class c
  where c.oid = relation or c.oid in (select t.relid from pg_partition_tree(relation) t)
$$;
comment on function annals.leaves is 'A table and, when it is partitioned, all partitions below it: whether they hold rows that can be captured, and what they are, as in pg_class.';

create function annals.runs_code(type oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- A domain itself is stored as what it is based on. Within arrays, composites and ranges it stays, and its constraints are checked.
  with recursive parts (id) as (
    select case t.typtype when 'd' then t.typbasetype else t.oid end from pg_type t where t.oid = runs_code.type
    union
    select x.id from parts p join pg_type t on t.oid = p.id cross join lateral (
      select t.typelem where t.typelem <> 0
      union all select t.typbasetype where t.typtype = 'd'
      union all select r.rngsubtype from pg_range r where t.oid in (r.rngtypid, r.rngmultitypid)
      union all select a.atttypid from pg_attribute a where a.attrelid = t.typrelid and t.typrelid <> 0 and a.attnum > 0 and not a.attisdropped) x (id))
  select exists (select from parts p join pg_type t on t.oid = p.id and t.typtype = 'd'
                 -- A domain over a domain, as far as it is stripped.
                 where not exists (with recursive base (id) as (select runs_code.type union select b.typbasetype from base join pg_type b on b.oid = base.id and b.typtype = 'd') select from base where base.id = p.id))
$$;
comment on function annals.runs_code is 'Whether reading a text as a value of a type checks constraints of domains, which is code of their owner''s.';

create function annals.key_index(relation oid) returns oid
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  -- The primary key, else the unique key of not-null columns with the fewest columns. It must tell rows apart after each statement.
  return (select i.indexrelid
  from pg_index i join pg_class x on x.oid = i.indexrelid
  left join pg_constraint k on k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x')
  where i.indrelid = relation and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
    and coalesce(k.contype, 'u') <> 'x' and not coalesce(k.condeferred, false)
    and (to_jsonb(k)->>'conperiod') is distinct from 'true'
    and not exists (select from unnest(i.indkey::int2[]) with ordinality u (attnum, position)
                      join pg_attribute a on a.attrelid = relation and a.attnum = u.attnum
                      where u.position <= i.indnkeyatts and (not a.attnotnull or a.atttypid >= 16384 and annals.runs_code(a.atttypid)))
    and not exists (select from unnest(i.indkey::int2[]) u (attnum) where u.attnum <= 0)
  order by i.indisprimary desc, i.indnkeyatts, i.indexrelid
  limit 1);
end $$;
comment on function annals.key_index is 'The unique index whose columns identify rows of a table; null when there is none. Capture reads keys from texts with the rights of its owner, so no value of theirs may run code of others.';

create function annals.harmless(function oid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  f record;
begin
  select p.prosrc, p.pronamespace, l.lanname into f from pg_proc p join pg_language l on l.oid = p.prolang where p.oid = function;
  if f.pronamespace = 'pg_catalog'::regnamespace then
    return true;
  end if;
  if f.lanname <> 'plpgsql' or f.prosrc ~* '\m(insert|update|delete|merge|truncate|execute|perform|select|call|copy)\M' then
    return false;
  end if;
  -- What stands before a parenthesis is a word of the language, or a function of PostgreSQL's that has no namesake elsewhere.
  return not exists (
    select from regexp_matches(f.prosrc, '([^][[:space:](){},;:+*/<>=!&|%^~?@#''-]+)\s*\(', 'g') m, lower(regexp_replace(m[1], '^pg_catalog\.', '', 'i')) word
    where word not in ('if', 'elsif', 'elseif', 'in', 'and', 'or', 'not', 'when', 'while', 'values', 'coalesce', 'nullif', 'greatest', 'least', 'row',
                       'return', 'any', 'all', 'some', 'cast', 'extract', 'case', 'then', 'else', 'is', 'array')
      and (not exists (select from pg_proc p where p.proname = word and p.pronamespace = 'pg_catalog'::regnamespace)
           or exists (select from pg_proc p where p.proname = word and p.pronamespace <> 'pg_catalog'::regnamespace)));
end $$;
comment on function annals.harmless is 'Whether a trigger function certainly writes no table. False in doubt: it is judged by its words.';

create function annals.cascades(relation oid) returns setof oid
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Foreign keys of partitions lead where those of their tables do.
  with recursive reached (relid) as (
    select coalesce(pg_partition_root(k.conrelid)::oid, k.conrelid) from pg_constraint k
      where k.contype = 'f' and k.confrelid = relation and (k.confdeltype in ('c', 'n', 'd') or k.confupdtype in ('c', 'n', 'd'))
    union
    select coalesce(pg_partition_root(k.conrelid)::oid, k.conrelid) from reached r join pg_constraint k
      on k.contype = 'f' and k.confrelid = r.relid and (k.confdeltype in ('c', 'n', 'd') or k.confupdtype in ('c', 'n', 'd')))
  select relid from reached
$$;
comment on function annals.cascades is 'Tables that foreign keys change when rows of a table are changed or deleted.';

create function annals.may_nest(relation oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (
    select from (select relation union select annals.cascades(relation)) r (relid), annals.leaves(r.relid) l join pg_trigger t on t.tgrelid = l.relid
    where not t.tgisinternal and t.tgname not like 'annals\_%' and not annals.harmless(t.tgfoid))
$$;
comment on function annals.may_nest is 'Whether triggers of a table, or of tables that it changes by foreign keys, may write it again within the same statement.';

create function annals.refers_to_itself(relation oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select from annals.cascades(relation) c where c = relation)
$$;
comment on function annals.refers_to_itself is 'Whether foreign keys make a change of a table change other rows of the same table, directly or through other tables.';

create function annals.inherits(relation oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (
    select from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where (i.inhrelid = relation or i.inhparent = relation) and not c.relispartition)
$$;
comment on function annals.inherits is 'Whether a table inherits from another or is inherited from, other than as a partition.';

create function annals.may_change_key(relation oid, columns name[]) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- tgtype: 1 row, 2 before, 16 update. A function may name a column, assign the row as a whole, hand it on, or return another one.
  select exists (
    select from pg_trigger t join annals.leaves(relation) l on l.relid = t.tgrelid join pg_proc p on p.oid = t.tgfoid join pg_language g on g.oid = p.prolang
    where not t.tgisinternal and t.tgname not like 'annals\_%' and t.tgtype & 19 = 19
      and case when p.pronamespace = 'pg_catalog'::regnamespace
                 then p.proname like 'tsvector\_update\_trigger%' and exists (select from pg_attribute a where a.attrelid = relation and a.attname = any (columns) and a.atttypid = 'tsvector'::regtype)
               else g.lanname <> 'plpgsql'
                 or p.prosrc ~* '\mnew\M\s*:?=|\m(into|for|call)\M[^;]*\mnew\M|\mreturn\M(?!\s*(new|old|null)\s*;)'
                 or exists (select from unnest(columns) c where strpos(lower(p.prosrc), lower(replace(c, '"', '""'))) > 0) end)
$$;
comment on function annals.may_change_key is 'Whether BEFORE triggers may change columns that an UPDATE does not name, such as those of the key. True in doubt.';

-- Without row-level security: policies are code of the table's owner.
create function annals.wide_columns(relation oid) returns name[]
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
  list text;
  result name[];
begin
  -- Columns whose values are stored out of line: judged by some rows, else by what ANALYZE found.
  select string_agg(format('nullif(greatest(avg(pg_column_size(%I)), 1000), 1000)', a.attname), ', ' order by a.attnum)
    into list from pg_attribute a where a.attrelid = relation and a.attnum > 0 and not a.attisdropped and a.attlen = -1 and a.attstorage in ('x', 'e') and a.attgenerated = '';
  if list is null then
    return '{}';
  end if;
  begin
    execute format('select array_agg(k.name order by k.name) from (select array[%s]::numeric[] as sizes from (select * from %s limit 100) t) s, unnest(%L::name[], s.sizes) k (name, size) where k.size is not null',
      list, relation::regclass,
      (select array_agg(a.attname order by a.attnum) from pg_attribute a where a.attrelid = relation and a.attnum > 0 and not a.attisdropped and a.attlen = -1 and a.attstorage in ('x', 'e') and a.attgenerated = '')) into result;
  exception when insufficient_privilege then
    null; -- may write triggers on it but not read it, or not all of it
  end;
  return coalesce(result, '{}');
end $$;
comment on function annals.wide_columns is 'Columns of a table whose values are mostly stored out of line.';
