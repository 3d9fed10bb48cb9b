-- Reading, for SQL clients. Inflating a snapshot is beyond SQL: where only it could tell, that is said.

create function automerge.heads(p_doc uuid) returns bytea[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  found_heads bytea[];
begin
  select d.heads into found_heads from automerge.document d where d.id = p_doc;
  if not found then
    perform automerge.refuse_unknown(p_doc);
  end if;
  return found_heads;
end $$;
comment on function automerge.heads is 'Heads of a document: hashes of the changes that no other one depends on, in order.';

create function automerge.contains(p_doc uuid, p_hash bytea) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  perform automerge.heads(p_doc);
  return automerge.known(p_doc, array[p_hash]) <> '{}';
end $$;
comment on function automerge.contains(uuid, bytea) is 'Whether a document has the change with this hash.';

create function automerge.contains(p_doc uuid, p_other uuid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  other_heads bytea[] := automerge.heads(p_other);
begin
  -- Who has a change has all that it depends on, so heads are enough.
  return automerge.heads(p_doc) @> other_heads or cardinality(automerge.known(p_doc, other_heads)) = cardinality(other_heads);
end $$;
comment on function automerge.contains(uuid, uuid) is 'Whether a document has all changes of another one.';

create function automerge.changes(p_doc uuid, p_since bytea[] default '{}') returns setof automerge.change
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  document_heads bytea[] := automerge.heads(p_doc);
begin
  if exists (select from automerge.document d where d.id = p_doc and d.folded > 0)
     and not (select coalesce(s.heads <@ array(select a from automerge.ancestors(p_doc, p_since) a), true) from automerge.snapshot s where s.doc = p_doc) then
    perform automerge.refuse('AM008', format('changes of document %s since these heads were folded into its snapshot', p_doc),
      'SQL can''t read them there: use automerge.save, or Changes of the Go package.', jsonb_build_object('doc', p_doc));
  end if;
  return query select c.* from automerge.change c where c.doc = p_doc and c.hash not in (select a from automerge.ancestors(p_doc, p_since) a) order by c.place;
end $$;
comment on function automerge.changes is 'Changes of a document that do not belong to what these heads name, each after those that it depends on. Hashes that the document does not have are passed over.';

-- Where the walk comes to the snapshot it ends with a hash of that: the last ones are the heads of it that were reached.
create function automerge.ancestors(p_doc uuid, p_since bytea[]) returns setof bytea
language sql stable rows 100 set search_path = pg_catalog, pg_temp as $$
  with recursive reached (hash) as (
    select unnest(p_since)
    union
    select d from reached r join automerge.change c on c.doc = p_doc and c.hash = r.hash cross join unnest(c.deps) d)
  select hash from reached
$$;
comment on function automerge.ancestors is 'Hashes, and those of all that they depend on among the changes that are not folded, with what these depend on directly.';

create function automerge.save(p_doc uuid) returns bytea
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  perform automerge.heads(p_doc);
  return coalesce((select s.data from automerge.snapshot s where s.doc = p_doc), '')
    || coalesce((select string_agg(c.chunk, '' order by c.place) from automerge.change c where c.doc = p_doc), '');
end $$;
comment on function automerge.save is 'A document as Automerge loads it: its snapshot and the changes after that.';

-- The union of documents: their snapshots, but those that are held by another one, as those of forks mostly are, and every change that is in none of
-- them, once. Automerge loads that like a save.
create function automerge.merged(p_docs uuid[]) returns bytea
language sql stable set search_path = pg_catalog, pg_temp as $$
  with s as materialized (
    select distinct on (s.heads) s.* from automerge.snapshot s where s.doc = any (p_docs) order by s.heads, s.doc),
  kept as materialized (
    select s.* from s where not exists (
      select from s o where o.changes > s.changes and not exists (select from unnest(s.heads) h where not automerge.holds(o.hashes, h))))
  select coalesce((select string_agg(data, '' order by changes desc, doc) from kept), '')
    || coalesce((select string_agg(chunk, '' order by place, hash) from (
         select distinct on (c.hash) c.hash, c.place, c.chunk from automerge.change c
           where c.doc = any (p_docs) and not exists (select from kept s where automerge.holds(s.hashes, c.hash))
           order by c.hash, c.place) q), '')
$$;
comment on function automerge.merged is 'The union of documents as Automerge loads it.';

create aggregate automerge.merge(uuid) (sfunc = array_append, stype = uuid[], initcond = '{}', finalfunc = automerge.merged);
comment on aggregate automerge.merge(uuid) is 'The union of the documents with these ids, as Automerge loads it.';
