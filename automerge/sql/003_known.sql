-- What a document already has.

create function automerge.known(p_doc uuid, p_hashes bytea[]) returns bytea[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  found_here bytea[]; rest bytea[];
begin
  select coalesce(array_agg(u.h) filter (where c.hash is not null), '{}'), coalesce(array_agg(u.h) filter (where c.hash is null), '{}') into found_here, rest
    from (select distinct unnest(p_hashes)) u (h) left join automerge.change c on c.doc = p_doc and c.hash = u.h;
  -- The list of what is folded is looked at only for what is not found otherwise.
  if rest <> '{}' then
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

-- What a writer has to know of a document before it writes: it comes back with the document locked, so all of it stays true until the
-- transaction ends. Where there is nothing to write, nothing is locked.
create function automerge.look(p_doc uuid, p_hashes bytea[], p_deps bytea[],
  out known bytea[], out missing bytea[], out document automerge.document, out state bytea)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  known := automerge.known(p_doc, p_hashes);
  if cardinality(known) < cardinality(p_hashes) then
    -- A statement sees what was committed before it began: the looking begins anew once the document is locked.
    perform from automerge.document d where d.id = p_doc for no key update;
    if not found then
      perform automerge.refuse_unknown(p_doc);
    end if;
    known := automerge.known(p_doc, p_hashes || p_deps);
    missing := array(select unnest(p_deps) except select unnest(known || p_hashes));
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
