-- Writing. Nobody may write the tables; there is a view instead, whose trigger does it with the rights of the owner. The view is read with the
-- rights of whoever writes, and locks the document as an UPDATE would: so the policies of automerge.document decide, not ours. It has columns
-- for all that can be added to a document in one go.

create view automerge.writing with (security_invoker = true) as
  select d.id, d.heads, d.changes,
    null::bytea[] as hash, null::bytea[] as deps, null::bytea[] as actor, null::bigint[] as seq, null::bigint[] as start_op, null::bigint[] as ops,
    null::bigint[] as time, null::text[] as message, null::bytea[] as chunk,
    null::bytea[] as park, null::bytea[] as park_deps, null::bytea[] as park_chunk,
    null::boolean as whole, null::text[] as paths, null::jsonb as data, null::bytea as state,
    null::bytea as snapshot, null::bytea[] as snapshot_heads, null::bytea as snapshot_hashes, null::bytea as snapshot_authors, null::bytea[] as snapshot_actors, null::bigint[] as snapshot_seqs,
    null::bigint[] as snapshot_max_ops, null::bigint as snapshot_ops, null::bigint as folds
  from automerge.document d for no key update;
comment on view automerge.writing is 'Where writers put what is to be added to a document: changes (hash to chunk, in causal order), changes that wait (park), its projection (data, state), its snapshot. Used by the Go package, which has validated what it puts there.';

create function automerge.write() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  d automerge.document; here bigint;
begin
  select * into d from automerge.document where id = old.id;  -- the view has locked it
  here := d.changes;
  if new.snapshot is not null then
    d := automerge.write_snapshot(d, new);
  end if;
  if new.hash <> '{}' then
    d := automerge.write_changes(d, new);
  end if;
  if new.park <> '{}' then
    insert into automerge.parked (doc, hash, deps, chunk)
      select d.id, u.hash, automerge.split_hashes(u.deps), u.chunk from unnest(new.park, new.park_deps, new.park_chunk) u (hash, deps, chunk)
      on conflict (doc, hash) do nothing;
    d.parked := (select count(*) from automerge.parked p where p.doc = d.id);
  end if;
  update automerge.document set heads = d.heads, changes = d.changes, ops = d.ops, bytes = d.bytes, folded = d.folded, parked = d.parked,
      changed_at = case when d.changes > here then now() else changed_at end
    where id = d.id;
  if new.data is not null then
    insert into automerge.projection as p (doc, data, state) values (d.id, new.data, new.state)
      on conflict (doc) do update set data = excluded.data, state = excluded.state;
  end if;
  if new.whole is not null then
    update automerge.document set whole = new.whole, paths = new.paths where id = d.id;
    if not new.whole and new.paths = '{}' then
      delete from automerge.projection where doc = d.id;
    end if;
  end if;
  if d.changes > here then
    -- No content: anybody who may connect may listen.
    perform pg_notify('automerge', d.id || ' ' || d.changes);
  end if;
  new.heads := d.heads;
  new.changes := d.changes;
  return new;
end $$;
comment on function automerge.write is 'Adds to a document what was put into automerge.writing, all of it or nothing.';

-- Adds changes. Whoever calls knows what is there already; it is looked at here again, because a document that lacks a dependency is no document.
create function automerge.write_changes(d automerge.document, n automerge.writing) returns automerge.document
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  added bytea[]; every_dep bytea[]; lacking bytea[]; bad record;
begin
  every_dep := array(select distinct h from unnest(n.deps) u (list), unnest(automerge.split_hashes(u.list)) h);
  lacking := array(select unnest(every_dep) except select unnest(n.hash));
  if not lacking <@ d.heads then
    lacking := array(select unnest(lacking) except select unnest(automerge.known(d.id, lacking)));
    if lacking <> '{}' then
      perform automerge.refuse('AM003', format('changes that others depend on are missing in document %s: %s', d.id, array_to_string(automerge.hex(lacking[1:5]), ', ')),
        'Send them as well, or park what depends on them.', jsonb_build_object('doc', d.id, 'missing', automerge.hex(lacking)));
    end if;
  end if;
  -- Each actor's changes are numbered without a gap, and so are its operations.
  select u.actor, u.seq, u.hash, b.seq as last_seq, b.last_op, u.start_op into bad
    from (select q.*, lag(q.seq) over w as before_seq, lag(q.start_op + q.ops - 1) over w as before_op
            from unnest(n.hash, n.actor, n.seq, n.start_op, n.ops) with ordinality q (hash, actor, seq, start_op, ops, place)
            window w as (partition by q.actor order by q.place)) u
    cross join lateral (select coalesce(u.before_seq, t.seq, 0) as seq, coalesce(u.before_op, t.last_op, 0) as last_op
                          from (select) one left join lateral automerge.last_of(d.id, u.actor) t on u.before_seq is null) b
    where u.seq <> b.seq + 1 or u.start_op <= b.last_op order by u.place limit 1;
  if found then
    if bad.seq <= bad.last_seq then
      perform automerge.refuse('AM004', format('actor %s has made change %s of document %s already, with other content', encode(bad.actor, 'hex'), bad.seq, d.id),
        'Two copies of a program use one actor id: give each its own.', jsonb_build_object('doc', d.id, 'actor', encode(bad.actor, 'hex'), 'seq', bad.seq, 'hash', encode(bad.hash, 'hex')));
    end if;
    perform automerge.refuse('AM005', format('change %s of document %s is number %s of actor %s with operations from %s, after number %s with operations to %s', encode(bad.hash, 'hex'), d.id, bad.seq, encode(bad.actor, 'hex'), bad.start_op, bad.last_seq, bad.last_op),
      'It was not made by Automerge.', jsonb_build_object('doc', d.id, 'hash', encode(bad.hash, 'hex'), 'actor', encode(bad.actor, 'hex'), 'seq', bad.seq));
  end if;
  insert into automerge.change (doc, hash, place, actor, seq, start_op, ops, time, message, deps, chunk)
    select d.id, u.hash, d.changes + u.place, u.actor, u.seq, u.start_op, u.ops, u.time, u.message, automerge.split_hashes(u.deps), u.chunk
      from unnest(n.hash, n.deps, n.actor, n.seq, n.start_op, n.ops, n.time, n.message, n.chunk) with ordinality u (hash, deps, actor, seq, start_op, ops, time, message, chunk, place);
  if d.parked > 0 then
    delete from automerge.parked where doc = d.id and hash = any (n.hash);
    d.parked := (select count(*) from automerge.parked p where p.doc = d.id);
  end if;
  d.heads := array(select unnest(d.heads || n.hash) except select unnest(every_dep) order by 1);
  d.changes := d.changes + cardinality(n.hash);
  d.ops := d.ops + (select sum(o) from unnest(n.ops) o);
  d.bytes := d.bytes + (select sum(length(c)) from unnest(n.chunk) c);
  return d;
end $$;
comment on function automerge.write_changes is 'Adds changes to a document that is locked, and returns its row as it is then.';

-- A snapshot is what a document begins with (folds is null), or changes that it has take another form: those in the old snapshot, which
-- held as many as folds says, and rows. Which those are the list of hashes says.
create function automerge.write_snapshot(d automerge.document, n automerge.writing) returns automerge.document
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  was automerge.snapshot; gone bigint; gone_bytes bigint; total bigint := length(n.snapshot_hashes) / 32;
begin
  select * into was from automerge.snapshot where doc = d.id;
  if coalesce(was.changes, 0) <> coalesce(n.folds, d.changes) or n.folds is null and d.changes > 0 then
    raise exception 'document % has another snapshot since', d.id using errcode = '40001', hint = 'Repeat the transaction.';
  end if;
  with deleted as (
    delete from automerge.change c using unnest(automerge.split_hashes(n.snapshot_hashes)) h where n.folds is not null and c.doc = d.id and c.hash = h returning length(c.chunk) as bytes)
    select count(*), coalesce(sum(bytes), 0) into gone, gone_bytes from deleted;
  if n.folds + gone <> total then
    raise exception 'the snapshot of document % would hold % changes, and % are to be in it', d.id, total, n.folds + gone using errcode = 'XX000';
  end if;
  insert into automerge.snapshot (doc, heads, changes, ops, hashes, authors, actors, seqs, max_ops, data)
    values (d.id, n.snapshot_heads, total, n.snapshot_ops, n.snapshot_hashes, n.snapshot_authors, n.snapshot_actors, n.snapshot_seqs, n.snapshot_max_ops, n.snapshot)
    on conflict (doc) do update set heads = excluded.heads, changes = excluded.changes, ops = excluded.ops, hashes = excluded.hashes, authors = excluded.authors, actors = excluded.actors,
      seqs = excluded.seqs, max_ops = excluded.max_ops, made_at = now(), data = excluded.data;
  if n.folds is null then
    d.heads := n.snapshot_heads;
    d.changes := total;
    d.ops := n.snapshot_ops;
  end if;
  d.folded := total;
  d.bytes := d.bytes - gone_bytes - coalesce(length(was.data), 0) + length(n.snapshot);
  return d;
end $$;
comment on function automerge.write_snapshot is 'Writes the snapshot of a document that is locked, and returns the document''s row as it is then.';

create trigger write instead of update on automerge.writing for each row execute function automerge.write();
comment on trigger write on automerge.writing is 'Writes what is put into the view.';
