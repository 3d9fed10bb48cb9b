-- What a document already has.

create function automerge.split_hashes(p bytea) returns bytea[]
language sql immutable set search_path = pg_catalog, pg_temp
return array(select substring(p from n for 32) from generate_series(1, length(p), 32) n order by n);
comment on function automerge.split_hashes is 'Hashes that stand one behind the other.';

create function automerge.last_of(p_doc uuid, p_actor bytea, out seq bigint, out last_op bigint)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  select c.seq, c.start_op + c.ops - 1 into seq, last_op from automerge.change c where c.doc = p_doc and c.actor = p_actor order by c.seq desc limit 1;
  if seq is null then
    select s.seqs[n], s.max_ops[n] into seq, last_op from automerge.snapshot s, array_position(s.actors, p_actor) n where s.doc = p_doc and n is not null;
  end if;
end $$;
comment on function automerge.last_of is 'Number of the last change and of the last operation of an actor in a document; null where it has none.';

create function automerge.known(p_doc uuid, p_hashes bytea[]) returns bytea[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  found_here bytea[]; rest bytea[];
begin
  select coalesce(array_agg(u.h) filter (where c.hash is not null), '{}'), coalesce(array_agg(u.h) filter (where c.hash is null), '{}') into found_here, rest
    from (select distinct unnest(p_hashes)) u (h) left join automerge.change c on c.doc = p_doc and c.hash = u.h;
  -- The list of what is folded is looked at only for what is not found otherwise.
  if cardinality(rest) > 20 then
    found_here := found_here || array(select unnest(rest) intersect select unnest(automerge.split_hashes(s.hashes)) from automerge.snapshot s where s.doc = p_doc);
  elsif rest <> '{}' then
    found_here := found_here || array(
      select u.h from unnest(rest) u (h) cross join (select s.hashes from automerge.snapshot s where s.doc = p_doc offset 0) s where automerge.holds(s.hashes, u.h));
  end if;
  return found_here;
end $$;
comment on function automerge.known is 'Which of these hashes are changes of the document.';

create function automerge.holds(p_hashes bytea, p_hash bytea) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  here int := 1; at int;
begin
  loop
    at := position(p_hash in substring(p_hashes from here));
    exit when at = 0;
    if (here + at - 2) % 32 = 0 then
      return true;
    end if;
    here := here + at;  -- found between two hashes: go on behind it
  end loop;
  return false;
end $$;
comment on function automerge.holds is 'Whether a list of hashes, 32 bytes each, holds one.';

-- An actor's changes are numbered: one with a higher number than the document has of its actor is new, which takes no look at what is folded.
create function automerge.not_new(p_doc uuid, p_hashes bytea[], p_actors bytea[], p_seqs bigint[]) returns bytea[]
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(array_agg(u.hash), '{}') from unnest(p_hashes, p_actors, p_seqs) u (hash, actor, seq)
    join (select a.actor, l.seq from (select distinct unnest(p_actors)) a (actor), automerge.last_of(p_doc, a.actor) l) have on have.actor = u.actor
    where u.seq <= have.seq
$$;
comment on function automerge.not_new is 'Those of changes that may be in the document already.';

-- What a writer has to know of a document before it writes: it comes back with the document locked, so all of it stays true until the
-- transaction ends. Where there is nothing to write, nothing is locked.
create function automerge.look(p_doc uuid, p_hashes bytea[], p_actors bytea[], p_seqs bigint[], p_deps bytea[],
  out known bytea[], out missing bytea[], out document automerge.document, out state bytea)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  known := automerge.known(p_doc, automerge.not_new(p_doc, p_hashes, p_actors, p_seqs));
  if cardinality(known) < cardinality(p_hashes) then
    -- A statement sees what was committed before it began: the looking begins anew once the document is locked.
    perform from automerge.document d where d.id = p_doc for no key update;
    if not found then
      perform automerge.refuse_unknown(p_doc);
    end if;
    known := automerge.known(p_doc, automerge.not_new(p_doc, p_hashes, p_actors, p_seqs));
    missing := array(select unnest(p_deps) except select unnest(d.heads) from automerge.document d where d.id = p_doc);
    missing := array(select unnest(missing) except select unnest(p_hashes || automerge.known(p_doc, missing)));
  end if;
  select d.* into document from automerge.document d where d.id = p_doc;
  if document.id is null then
    perform automerge.refuse_unknown(p_doc);
  end if;
  if document.whole or document.paths <> '{}' then
    select p.state into state from automerge.projection p where p.doc = p_doc;
  end if;
end $$;
comment on function automerge.look is 'Locks a document for writing and says which of these changes and dependencies it has, which dependencies are missing, and the rest that a writer needs.';
