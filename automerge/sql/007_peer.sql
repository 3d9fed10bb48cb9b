-- Peers of the sync protocol: what is known about them may be written by those who may read the document.

create view automerge.syncing with (security_invoker = true) as
  select d.id, null::text as peer, null::bytea as state from automerge.document d;
comment on view automerge.syncing is 'Where the Go package puts what is known about peers of a document; a state of null is forgotten.';

create function automerge.write_peer() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if new.state is null then
    delete from automerge.peer p where p.doc = old.id and p.peer = new.peer;
  else
    insert into automerge.peer as p (doc, peer, state) values (old.id, new.peer, new.state)
      on conflict (doc, peer) do update set state = excluded.state, changed_at = now();
  end if;
  return new;
end $$;
comment on function automerge.write_peer is 'Writes what is known about a peer.';
create trigger write_peer instead of update on automerge.syncing for each row execute function automerge.write_peer();
comment on trigger write_peer on automerge.syncing is 'Writes what is put into the view.';
